"""Calling: from a fired event to what each hook made of it.

firing            one event from the first hook to the last: order, veto, isolation.
hook_call         one hook: condition, handler, time limit, error handler.
verdicts          what a returned value means.
timeout_threads   threads for calls with a time limit, left behind when it is over.
background_calls  the bounded queue of calls that nobody waits for.
"""
