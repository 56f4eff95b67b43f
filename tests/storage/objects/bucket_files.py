"""The keys of a bucket as a test sees them."""


def keys(client, below=""):
    """What is under ``root``, as far as it begins with ``below``."""
    found = (str(meta["path"]).removeprefix("root/") for chunk in client.list("root") for meta in chunk)
    return sorted(key for key in found if key.startswith(below))
