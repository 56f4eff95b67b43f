"""A collection that only tells says what the next one will remove, and removes nothing."""

import model_checkpoint as mc
from model_checkpoint.options import Graces

AT_ONCE = Graces(local=0.0, foreign=0.0, trash=0.0)


def test_a_dry_collection_tells_what_the_next_will_remove_and_leaves_it(tmp_path):
    for step in (1, 2):
        mc.save(tmp_path, {"a": b"bytes" * step}, step=step)
    mc.delete(tmp_path, step=1)

    told = mc.collect_garbage(tmp_path, graces=AT_ONCE, dry_run=True)
    mc.undelete(tmp_path, step=1)
    back = [info.step for info in mc.list_checkpoints(tmp_path)]
    mc.delete(tmp_path, step=1)
    done = mc.collect_garbage(tmp_path, graces=AT_ONCE)

    assert back == [2, 1]
    assert len(told.trashed) == len(done.trashed) == 1
    assert told.nbytes == done.nbytes > 0
