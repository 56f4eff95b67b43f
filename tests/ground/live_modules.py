"""Live modules: torch modules that hold more than tensors."""

import torch


class Counting(torch.nn.Linear):
    """A module with a state beside its tensors."""

    calls = 0

    def get_extra_state(self):
        return {"calls": self.calls}

    def set_extra_state(self, state):
        self.calls = state["calls"]
