"""Sections: benchmarks that run one after the other in the process of ``python -m bench``."""
