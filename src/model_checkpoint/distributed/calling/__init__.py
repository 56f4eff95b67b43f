"""Calling: one call that all ranks make together: what was asked for, how long it may take, and its turn.

call_options         what a save and a load can be asked for.
call_limit           how long a call may take, and whether somebody has cancelled or left it.
limited_coordinator  a coordinator for one call with a limit.
error_details        an error of a call with all that a caller looks for on it.
pending_call         a call that goes on in a thread, and the order of the calls.
bounded_call         a call is waited for as long as it may take; one that hangs is left behind.
"""
