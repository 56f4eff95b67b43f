"""Gradients: judged, unscaled and clipped.

finite      one pass over the gradients that says their true norm, or which parameters broke and how.
conversion  scaled half gradients in, true clipped FP32 gradients out.
"""
