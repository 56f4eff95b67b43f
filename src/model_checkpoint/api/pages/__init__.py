"""Pages: the files of the dashboard, read once, sent in few.

page_server    which file answers a path; what a browser has already is not asked for again.
joined_pages   what the one page would ask for file by file, in few files.
module_joiner  modules that import each other, as one file.
page_files     the files below ``web``, each with its type, digest and packed form.
"""
