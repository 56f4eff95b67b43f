"""Gate: the one way in. Every request of every router passes it, also those nobody answers.

admission   what a request must be to be let in, asked of its head alone.
body_guard  a body that is no larger and no slower than we take.
gatekeeper  all of it in one piece of ASGI, and the headers of every answer.
"""
