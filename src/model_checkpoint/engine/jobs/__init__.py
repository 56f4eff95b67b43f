"""Jobs: the handles of background saves, and which are in flight.

job           the handle of one background save, and all that its owner may do with it.
running_save  how far one background save has come, told by the threads that carry it out to all who wait.
followups     what is done for a checkpoint after its save was acknowledged.
inflight      which background saves of this process are under way, and whose failure nobody has learnt of yet.
"""
