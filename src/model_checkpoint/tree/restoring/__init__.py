"""Restoring: a tree becomes a state, or flows into live objects (the last step of a load).

restore             a saved tree becomes a state again, or flows into the caller's live objects.
preparing           live objects that change their form before what was saved can fit them.
matcher             a saved tree is laid over live objects; first every difference is found, later the values flow.
stateful_objects    live things with a state_dict take their saved state through their own ``load_state_dict``.
keras_objects       saved arrays reach the variables of live models and optimizers, whichever backend holds them.
torch_modules       read into their own tensors where that is all loading means, else through ``load_state_dict``.
torch_optimizers    state goes to new tensors through ``load_state_dict``, matched by parameter name, dtypes kept.
live_specs          what the caller's objects expect of a checkpoint, said in the names a save would give.
live_state          the caller's objects as one load sees them; containers, modules and arrays are looked at once.
torch_module_state  what a live module's state_dict holds, under which names, and whether loading is mere copying.
matching            what is known while a saved tree is laid over live objects, and what is left to do.
destinations        stored arrays reach the live arrays that wait for them, directly where their memory allows it.
build               nodes become values again. Everything is checked first; building afterwards cannot meet a bad node.
"""
