"""Engine: save, load, commit, recover. The only place that wires the stages; read `save.py` top to bottom first."""
