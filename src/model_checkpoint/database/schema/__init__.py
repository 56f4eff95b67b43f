"""Schema: which tables there are, and how an older or empty database comes to have them.

revisions       those of the schema, and what a stored one means to this version of the package.
schema_version  what revision a database has, and how it is noted there.
schema_lock     one process at a time makes or changes tables.
audit_guard     triggers that keep the audit log as it is.
creation        all tables in an empty database, at once.
backups         the data as they were, kept before a migration.
ddl_steps       steps a migration is made of, each of which may be done twice.
migration       from one revision to another, forward and back.
"""
