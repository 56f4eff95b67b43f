"""Background: saves that go on while training does.

save_async       copy a state into staging memory, return, and make the checkpoint durable meanwhile.
planned_save     a save that is planned and not written yet, of one process or of many ranks.
lazy             which runs of a save may be copied after the call, because only a guarded step can change them.
staging_pool     the staging memory of this process, kept between saves because fresh pages cost three times the copy.
staging_queue    carry filled slabs from the threads that copy to the threads that write.
preempted_ranks  all ranks take notice of a coming end together, and save what all have time for.
preemption       the scheduler gives notice by a signal; the loop saves at its next step boundary, in the time left.
"""
