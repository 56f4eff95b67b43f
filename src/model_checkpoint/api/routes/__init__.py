"""Routes: every path that is answered, one router for each noun; what they say is read or done below.

route_services     what every route works with.
limits             parameters that several routes take, each with its bounds.
server_routes      the server itself.
run_routes         runs, their series, saves, plans.
checkpoint_routes  checkpoints found, looked into, compared and marked.
retention_routes   what would go, what went, what came back; storage and trash.
integrity_routes   verification, repair and other long work.
event_routes       what changes, as it does; lineage.
"""
