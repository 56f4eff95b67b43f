"""Running: a schedule in force: what is kept and what is run again in each step, natively or by torch's own regions.

runtime            a model with a schedule in force: its layers call the executor instead of themselves.
executor           run a model stage by stage, opening and closing the regions of its schedule around them.
kept_stage         run a stage that is in no region, saving its tensors the way its mode says.
region_frame       one region of one forward pass, which saves nothing and runs again when backward comes.
walking            what a walk through the stages is to the regions it opens, and which one this thread is on.
run_resources      what the walks and regions of one planned model share: how tensors are saved, compared and moved.
prefetch           run the region that backward needs next on a worker thread.
compiled_schedule  a schedule in the form the executor walks, one step per stage.
torch_regions      a schedule in force as regions of ``torch.utils.checkpoint``, for the compiler and FSDP.
stage_call         one stage of a model, what it does besides computing, and where its call is taken over.
call_state         remember the surroundings of one layer call, and put them back for its second run.
"""
