"""Live: what has changed, told as it happens.

file_version  of a SQLite file a value that moves once a commit of anybody can be seen.
changes       what changed between two looks at the shelves, and what the server itself did.
event_stream  the changes as server-sent events; a listener that was away gets what it missed.
"""
