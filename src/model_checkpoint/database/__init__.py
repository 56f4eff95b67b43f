"""Database: the catalog of runs, metrics and checkpoints, on SQLite, PostgreSQL or MySQL; the truth is on disk.

The names of the stub beside this file are imported on first use.

local               a file of this machine, read and written without the database library.
connection          the catalog of one database, whole.
connection_classes  which class serves a URL; others may be registered.
migration_manager   look at the schema of a database, bring it forward and back.
saved_rows          all that one save leaves in the catalog, in one transaction.
overview            many rows at a glance: runs, series, checkpoints and bytes, as a page or a list shows them.
catalog             what can be written down and asked.
schema              which tables there are, and how an older database comes to have them.
migrations          the revisions of the schema, one file each.
models              the tables.
writes              what is written to a catalog, each rule once for a file and for a whole connection.
opening             from a URL to short transactions that are tried again when that helps.
queries             what is read from a catalog, each query once for both.
table_rows          rows of tables, found and changed: what questions and rules are carried out with.
values              how what we store is written down so that it comes back exactly.
records             runs, points and checkpoints, as values; whoever lists needs no others.
summed_records      what many rows come to.
event_records       what happened to them.
errors              each derives from the one tree and from the builtin its callers expect.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
