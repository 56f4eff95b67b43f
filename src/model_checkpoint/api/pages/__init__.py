"""Pages: the files of the dashboard, read once, sent as they are.

page_files   the files below ``web``, each with its type, digest and packed form.
page_server  which file answers a path; what a browser has already is not asked for again.
"""
