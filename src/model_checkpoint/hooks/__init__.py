"""Hooks: code of the user's that is called when something happens to a checkpoint.

The names of the stub beside this file are imported on first use.

hook_manager  registers hooks, fires events, and remembers what each hook cost.
base_hook     what authors of hooks derive from.
decorators    mark a function as a hook, and change how it behaves.
values        events, priorities, what a hook is handed and what a firing gives back.
registering   from an object or a function to what is called on each event.
calling       from a fired event to what each hook made of it.
recording     what is remembered of every call.
builtin       hooks that come with the library.
errors        each derives from the one tree and from the builtin its callers expect.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
