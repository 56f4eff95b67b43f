"""Proof: what a power cut and a flipped bit do to the checkpoints of each library, tried and counted.

``child``      one save or load in a process of its own, so that a crash or a hang is a result and not the end
``reading``    load a checkpoint and say what came back
``power_cut``  save, cut the power when the call has returned, mount again, load
``bit_flip``   flip one stored bit, load, flip it back
``report``     the counts as Markdown for the docs and the README

The libraries and how each is called are those of ``bench.contenders``.
"""
