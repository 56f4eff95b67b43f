"""Recording: what is remembered of every call, in bounded memory.

hook_records     all of it in one place.
hook_timeline    what each hook cost on each event.
hook_statistics  counts and times of each hook.
dead_letters     calls that failed, with what is needed to make them again.
"""
