"""Mutants: small wrongs put into copies of the sources, to learn which of them the tests would miss.

``kinds``     every way a source file can be wrong by one small change
``workshop``  a copy of the tree in which a mutant runs against the tests of its room; the checkout is never touched
``tally``     the kill rate per room, and who lived
"""
