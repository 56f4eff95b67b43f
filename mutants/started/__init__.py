"""Started: what a process runs that a test starts while lines are recorded.

``sitecustomize``  appends the functions it calls to the record; every Python whose path has this folder imports it
"""
