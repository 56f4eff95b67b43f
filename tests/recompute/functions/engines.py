"""Engines for the tests of recomputation."""

from model_checkpoint.recompute import RecomputationEngine


def recording_engine(layers, **dependencies):
    engine, order = RecomputationEngine(), []
    for layer in layers:
        engine.register_recompute_function(
            layer, lambda layer=layer: order.append(layer) or layer.encode(), dependencies.get(layer)
        )
    return engine, order
