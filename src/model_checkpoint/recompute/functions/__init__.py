"""Functions: registered functions run again, in order and as they ran first.

recomputation_engine  runs registered functions again, in dependency order, and keeps the books.
async_recomputation   several layers at once on a bounded number of threads.
recomputer            what a manager asks of an engine, its own or another's.
graph                 which layer needs which, and the order that follows.
replay_strategy       how a registered function is run again.
replay_state          the process-wide state that replays share (random generators, train flags, module buffers).
single_flight         of many callers that need one key, one computes and the others wait for it.
"""
