"""Each policy chooses the victim that its definition names, after any history."""

import random

import pytest

from model_checkpoint.recompute.activations.policies import CachePolicy, CostAwarePolicy, LFUPolicy, LRUPolicy


class Reference:
    """What a policy must choose, by looking at everything; ``rank`` gives the value of which the least goes."""

    def __init__(self):
        self.held, self.clock, self.age = {}, 0, 0.0

    def tick(self):
        self.clock += 1
        return self.clock

    def added(self, layer, size, cost):
        gain = cost / max(size, 1)
        self.held[layer] = {"uses": 0, "last": self.tick(), "gain": gain, "worth": self.age + gain}

    def used(self, layer):
        one = self.held[layer]
        one["uses"] += 1
        one["last"] = self.tick()
        one["worth"] = self.age + (one["uses"] + 1) * one["gain"]

    def victim(self, rank):
        victim = min(self.held, key=lambda layer: rank(self.held[layer]))
        self.age = self.held[victim]["worth"]
        return victim


RANKS = {
    LRUPolicy: lambda one: one["last"],
    LFUPolicy: lambda one: (one["uses"], one["last"]),
    CostAwarePolicy: lambda one: one["worth"],
}


@pytest.mark.parametrize("kind", RANKS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("most", [3, 60])
def test_the_victim_is_the_one_the_policy_is_named_after(kind, most):
    rng, policy, reference = random.Random(most), kind(), Reference()
    assert isinstance(policy, CachePolicy)
    for turn in range(3000):
        held = list(reference.held)
        if held and (len(held) >= most or rng.random() < 0.2):
            victim = policy.victim()
            assert victim == reference.victim(RANKS[kind]), turn
            policy.removed(victim)
            del reference.held[victim]
        elif held and rng.random() < 0.5:
            layer = rng.choice(held)
            policy.used(layer)
            reference.used(layer)
        elif held and rng.random() < 0.3:
            layer = rng.choice(held)
            policy.removed(layer)
            del reference.held[layer]
        else:
            size, cost = rng.randint(0, 100), rng.random()
            policy.added(f"layer{turn}", size, cost)
            reference.added(f"layer{turn}", size, cost)


def test_what_is_gone_is_forgotten_by_the_heap_too():
    """Layers that come and go without an eviction must not pile up."""
    policy = CostAwarePolicy()
    policy.added("stays", 1, 1.0)
    for turn in range(1000):
        policy.added(f"layer{turn}", 1, 2.0)
        policy.removed(f"layer{turn}")

    assert len(policy._heap) <= 2 * 1 + 65
    assert policy.victim() == "stays"
