"""Jobs: the handles of background saves, and which are in flight.

job       the handle of one background save.
inflight  which background saves of this process are under way, and whose failure nobody has learnt of yet.
"""
