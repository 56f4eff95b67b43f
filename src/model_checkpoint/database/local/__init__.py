"""Local: a catalog that is a file of this machine, read and written through Python's own driver.

Importing the database library takes longer than most commands do. What is not as we know it, a server or a file of
another version, goes to a whole connection; what the two answer and leave is the same, which a test holds.

opened_reader   who answers for a URL: the file itself, or a whole connection.
opened_writer   who writes, by the same rule.
local_writer    a file that is written to, by the rules of the room of writes.
local_catalog   a file that is read, by the queries of their room.
local_rows      rows of any table of it.
local_file      a SQLite file, opened to be read and written.
catalog_reader  the questions, which a file and a connection answer alike.
catalog_writer  what can be written, which both write down alike.
"""
