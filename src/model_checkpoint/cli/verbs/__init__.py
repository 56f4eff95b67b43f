"""Verbs: one function a verb; its words, and who does the work. Each imports what it needs when it runs.

inspecting      ls, show, cat, diff.
verifying       verify, repair, doctor, bench.
retaining       prune, forecast, pin, unpin, tag, note.
trashing        rm, trash, restore, gc.
moving          export, convert, adopt.
cataloging      reindex, experiments, metrics, lineage, sql.
hosting         serve.
extras          parts of the package that need more than what is always installed.
verb_arguments  what several verbs take, said once.
"""
