"""Mutants: small wrongs put into copies of the sources, to learn which of them the tests would miss.

``kinds``           every way a source file can be wrong by one small change
``code_swap``       a changed source put into the functions of a module that is imported already
``started``         what a process runs that a test starts while lines are recorded
``run_lines``       which tests run a line, kept until the room or the tests change
``rehearsal``       a process that has all tests of a room imported, knows the lines each runs, and forks per mutant
``rehearsed_room``  that process, seen from the workshop that asks it
``workshop``        a copy of the tree in which a mutant runs against the tests that tell; the checkout is never touched
``tally``           the kill rate per room, and who lived
"""
