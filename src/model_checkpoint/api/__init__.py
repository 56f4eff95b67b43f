"""API: what a server, a test or a program asks of the library, answered without any server.

base_api     endpoints, middleware, limits, caching and statistics of an API.
endpoints    which handler answers which path and method, by what rules.
rate_limits  how many requests a client may make in any minute.
exchange     what was asked and what was answered, as values.
"""
