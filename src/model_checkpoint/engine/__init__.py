"""Engine: save, load, commit, recover. The only place that wires the stages; read `writing/save.py` first.

writing     from a flat state to a committed checkpoint.
background  saves that go on while training does.
jobs        the handles of background saves, and which are in flight.
repairing   parity files and mirrors behind a save, and repair from them.
root        the checkpoints of one root, found, chosen, told about, deleted and cleared up.
reading     from verified chunks back to a state, a slice, a verdict or a difference.
ranks       how the ranks of one program agree while they save or load together.
common      what reading and writing share.
"""
