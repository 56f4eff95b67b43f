"""Mixed precision: train in 16 bits with FP32 masters, and resume bit for bit."""
