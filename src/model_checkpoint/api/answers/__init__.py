"""Answers: every JSON document the server sends or takes, as a model; the OpenAPI document is made from these.

plain_values        numbers and settings as JSON can say them.
basics              what every answer has in common; how a refusal looks.
server_answers      what is served, and what may be done to it.
run_answers         runs, their lines and pages.
series_answers      points of series, for those who do not read the binary form.
checkpoint_answers  checkpoints, their parts, tensors and differences.
keeping_answers     retention, trash, storage.
health_answers      integrity, damage, jobs.
history_answers     lineage, saves, hooks, memory plan, loss scale.
"""
