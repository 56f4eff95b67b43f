"""Auto: `auto_checkpoint`, training within a byte budget: measure, plan, run.

autocheckpoint  give a model a memory budget and train on; the front door of this room for torch.
measuring       what a model is made of and what each stage costs.
planning        from measured stages and a budget to a schedule. Numbers in, values out; no tensors.
running         a schedule in force: what is kept, dropped, offloaded and run again in each step.
saving          what becomes of the tensors that backward will ask for: held, made again, moved away.
common          what measuring, planning and running share.
"""
