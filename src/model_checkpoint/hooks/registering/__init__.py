"""Registering: from an object or a function to what is called on each event; whatever is misspelt is refused here.

subscriptions  one handler of one event, with all that was chosen for it.
discovery      finds the handlers of an object or a marked function.
registrations  a hook as it was handed in, checked and ready to be called.
hook_registry  who is registered, in the order in which they are called.
"""
