"""Values: what passes between whoever fires an event and the hooks that hear of it.

hook_event    the moments that can be heard, and the order in which hooks hear of one.
hook_context  what a hook is handed.
hook_result   what a firing gives back, and what went wrong in it.
hook_run      what one call of one hook cost, and how it ended.
plain_data    the part of a context that is text and numbers: what may be kept, logged and sent.
"""
