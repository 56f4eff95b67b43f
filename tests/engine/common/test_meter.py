"""What was done is told as it is done, of a total that may grow, and never more of it than there is."""

from model_checkpoint.engine.common.meter import Meter
from model_checkpoint.events import Progress


def told(seen):
    return [(event.operation, event.done, event.total, event.unit) for event in seen]


def test_each_step_is_told_with_the_total_as_it_is_by_then():
    seen = []
    meter = Meter("save", 10, seen.append)

    meter.add(3)
    meter.expect(5)
    meter.add(12)

    assert told(seen) == [("save", 3, 10, "bytes"), ("save", 15, 15, "bytes")]
    assert meter.done == 15
    assert all(event.seconds >= 0 for event in seen)


def test_an_operation_inside_another_counts_as_its_share_and_never_twice():
    seen = []
    meter = Meter("adopt", 10, seen.append, unit="checkpoints")
    inner = meter.share(4)

    for done, total in ((0, 100), (25, 100), (30, 100), (50, 100), (25, 100), (200, 100), (100, 100)):
        inner(Progress(operation="save", done=done, total=total, seconds=0.1))
    meter.share(3)(Progress(operation="save", done=0, total=0, seconds=0.1))

    assert told(seen) == [("adopt", done, 10, "checkpoints") for done in (1, 2, 4)]
