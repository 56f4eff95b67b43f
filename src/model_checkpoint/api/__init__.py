"""API: what a server, a test or a program asks of the library: an API without any server, and a server with pages.

serving      a socket, a token, the application behind its gate, and an orderly end.
application  gate, routers and pages put together.
warm_up      what the first visitor would wait for, done before.
routes       every path that is answered, one router for each noun.
live         what has changed, told as it happens.
jobs         long work with progress and an end.
pages        the files of the dashboard, few enough to be asked for at once.
reading      rows of the shelves become documents.
library      every catalog and root that is served, found, opened and asked by id.
answers      every JSON document that is sent or taken, as a model.
gate         the one way in.
base_api     endpoints, middleware, limits, caching and statistics of an API, without any server.
endpoints    which handler answers which path and method, by what rules.
rate_limits  how many requests a client may make in any minute.
exchange     what was asked and what was answered, as values.
errors       why the server refuses, each with the status it is answered with.
"""
