"""The keys of a bucket as a test sees them, and one file written whole."""

from model_checkpoint.testing.blobs import write_blob


def keys(client, below=""):
    """What is under ``root``, as far as it begins with ``below``."""
    found = (str(meta["path"]).removeprefix("root/") for chunk in client.list("root") for meta in chunk)
    return sorted(key for key in found if key.startswith(below))


def put(stage, file, data):
    """One file of an attempt or of a mending, sealed."""
    writer = stage.create(file, len(data))
    write_blob(writer, data)
    writer.seal()
