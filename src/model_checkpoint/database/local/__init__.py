"""Local: a catalog that is a file of this machine, asked and told through Python's own driver.

Importing the database library takes longer than most commands do. What is not as we know it, a server or a file of
another version, goes to a whole connection; what the two answer and leave is the same, which a test holds.

opened_reader   who answers for a URL: the file itself, or a whole connection.
opened_teller   who is told, by the same rule.
local_teller    a file that is told something: what, says the room of telling.
local_catalog   a file that is asked something: what, says the room of asking.
local_rows      rows of any table of it.
local_file      a SQLite file, opened to be asked and told.
catalog_reader  the questions, which a file and a connection answer alike.
catalog_teller  what can be told, which both write down alike.
"""
