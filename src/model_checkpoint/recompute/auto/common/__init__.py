"""Common: what measuring, planning and running share.

errors       errors of automatic activation checkpointing: which layer, what happened, what to do.
arguments    take a call apart into leaves and put it together again.
peak         count the bytes of every storage torch creates while a block of code runs.
statistics   what recomputation did, per layer and as a timeline.
agreement    let all processes of a job decide alike, by taking the first one's word.
run_options  how a plan is executed, checked before anything is measured.
budget       turn what a person writes ("2GB", 0.5, 1_000_000) into bytes.
clock        the time that a plan is about.
determinism  how closely a second run is compared with the first, from not at all to every byte.
overlap      how much a second thread really gets done beside the first on this machine, now.
"""
