"""Opening: from a URL to short transactions that are tried again when that helps.

database_url         which database is meant; what of it may be shown.
network_files        whether a file lies on a network file system.
sqlite_files         SQLite: pragmas, locks that wait, how durable a commit is.
sql_servers          PostgreSQL and MySQL: time limits, so that nothing hangs.
pool                 one pool of connections per process, begun anew after a fork.
failures             what an error of a driver means to us.
prepared_statements  those of every save, worked out once for each database.
transactions         run a piece of work in one transaction, until it is through or cannot be.
"""
