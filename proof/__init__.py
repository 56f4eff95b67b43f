"""Proof: what a power cut, a flipped bit and a kill do to the checkpoints of each library, tried and counted.

``child``      one save or load in a process of its own, so that a crash or a hang is a result and not the end
``reading``    load a checkpoint and say what came back
``power_cut``  save, cut the power when the call has returned, mount again, load
``bit_flip``   flip one stored bit, load, flip it back
``report``     the counts as Markdown for the docs and the README
``resuming``   kill a training, start it again, compare it with the unbroken one: ours, and every trainer's own way

The libraries and how each is called are those of ``bench.measuring.contenders``.
"""
