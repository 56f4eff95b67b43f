"""Quaternions: rotations that are none, in a batch, in what a model gives, in what is about to be saved.

quaternion_validation  checks quaternions, and puts those right that can be.
rotation_losses        checks that a rotation loss fits what it compares, and has a value it can have.
rotation_arrays        norms and repairs, the same for NumPy arrays and torch tensors.
"""
