"""The one compiled part of the package; all else about it is in pyproject.toml."""

from setuptools import Extension, setup

# Hashes several chunks at once where the processor has a SHA unit. Optional: without a compiler the package installs
# all the same, and hashlib does the work.
LANES = Extension(
    "model_checkpoint.format._sha256_lanes",
    ["src/model_checkpoint/format/_sha256_lanes.c"],
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[LANES], options={"bdist_wheel": {"py_limited_api": "cp311"}})
