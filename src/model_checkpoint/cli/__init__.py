"""CLI: the `mckpt` command: look at checkpoints, verify, compare, keep and remove them, ask their catalog.

main          the command as a program of its own, and what becomes of its failures.
app           every verb as a command, and which of them is meant.
verb_table    every verb, where it is written, and how it is called.
plain_texts   arguments that are texts, taken as they are.
bash_words    what bash cuts before it asks how a word goes on, put together.
usage         how arguments are written in the help of a verb.
verbs         one function a verb: its words, and who does the work.
rendering     tables for people, JSON for programs.
catalog_echo  what a verb did to a root, told to the catalog that indexes it.
checkup       what `mckpt doctor` looks at and `mckpt bench` measures.
finding       what verbs look for, as values.
quantities    sizes, times and numbers as a person reads them.
exit_codes    what the number a command leaves with means to a script.
errors        each derives from the one tree and from the builtin its callers expect.
"""
