"""Around: what stands around a loop and decides about its numbers, though nobody gave it to the run.

surroundings      all of it, looked at where a loop begins and where it saves.
loop_code         which names the bodies of a loop use, and which of them they make anew.
calling_frames    what those names stand for, where the loop runs.
loop_generators   the generators among that: taken down with the run, and set back.
carried_values    what bodies hand on to the next in names of the program: only named, nobody can set it.
hidden_values     what datasets, samplers, modules and hooks of the program keep in no state.
module_modes      how modules were switched meanwhile: train or eval, frozen or not.
"""
