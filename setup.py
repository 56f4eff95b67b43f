"""The compiled parts of the package; all else about it is in pyproject.toml."""

from setuptools import Extension, setup

# Optional: without a compiler the package installs all the same, and Python's own means do the work.
SOURCES = [
    "src/model_checkpoint/format/_sha256_lanes.c",  # hashes several chunks at once where there is a SHA unit
    "src/model_checkpoint/format/_galois.c",  # the sums of parity files, 32 bytes at a time
    "src/model_checkpoint/performance/_stream_copy.c",  # copies past the processor's caches
]
MODULES = [
    Extension(path[len("src/") : -len(".c")].replace("/", "."), [path], py_limited_api=True, optional=True)
    for path in SOURCES
]

setup(ext_modules=MODULES, options={"bdist_wheel": {"py_limited_api": "cp311"}})
