"""Generators: those of a program and of whatever makes batches, found, seeded, taken down and set back.

global_generators  the global generators of a program, taken and set as they are.
generator_memory   where Python and NumPy keep the words of their generators, to copy them as bytes.
held_generators    those that whatever makes batches holds, however it holds them.
seeding            one seed out of several numbers; generators seeded, taken down and set back.
"""
