"""Values: scalars, classes, codecs and dtypes as nodes, and back.

values            scalars that live in the tree itself, as nodes and back, each with its exact type.
plain             the values of a saved tree that are no arrays, and how a person reads one.
classes           dataclasses, namedtuples and enums, recorded by name and fields, found again without an import.
codecs            what other types become in a tree, and how they come back.
standard_codecs   what a codec is, and what containers, paths and random generators of Python become in a tree.
numpy_generators  what random generators of NumPy become in a tree.
dtypes            how each logical dtype is stored in a safetensors file.
numpy_dtypes      NumPy dtypes by logical name, both ways: numbers, times, texts, records, and the ml_dtypes family.
view_sizes        how many bytes the elements of a leaf take, which may be other numbers than those of its array.
"""
