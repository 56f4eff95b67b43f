"""Bench: this library beside torch.save, safetensors, DCP and Orbax, in interleaved rounds on one machine."""
