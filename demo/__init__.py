"""The demo: train, be killed in the middle of a save, resume bit for bit, find a flipped bit, fall back."""
