"""A collection that only tells says what the next one will remove, and removes nothing."""

import model_checkpoint as mc
from model_checkpoint.engine.root.recover import tell_of_trash
from model_checkpoint.errors import DiskFull, StorageFailure
from model_checkpoint.storage.locate import open_store
from model_checkpoint.testing.blobs import AT_ONCE


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


def test_what_is_deleted_while_leavings_go_counts_as_one_more_of_them(tmp_path):
    for step in (1, 2, 3):
        mc.save(tmp_path, {"a": step}, step=step)
    mc.delete(tmp_path, step=1)
    (tmp_path / ".staging/dead").mkdir()
    heard = []

    def listen(event):
        if not heard:  # the attempt is gone, the trash was not yet looked at
            mc.delete(tmp_path, step=2)
        heard.append((event.operation, event.done, event.total, event.unit))

    swept = mc.collect_garbage(tmp_path, graces=AT_ONCE, progress=listen)

    assert (len(swept.attempts), len(swept.trashed)) == (1, 2)
    assert [done for _, done, _, _ in heard] == [1, 2, 3]
    assert (heard[0], heard[-1]) == (("gc", 1, 2, "leavings"), ("gc", 3, 3, "leavings"))


def test_a_full_disk_tells_what_deleted_checkpoints_still_take_if_there_are_any(tmp_path):
    store, words = open_store(tmp_path), []

    def told(error):
        tell_of_trash(store, error)
        return error.message

    mc.save(tmp_path, {"a": b"bytes"}, step=1)
    words.append(told(DiskFull("full.", "here")))
    mc.delete(tmp_path, step=1)
    words.append(told(DiskFull("full.", "here")))
    words.append(told(StorageFailure("odd.", "here")))

    (gone,) = store.trash()
    assert (words[0], words[2]) == ("full.", "odd.")
    assert words[1].startswith(
        f"full. Deleted and replaced checkpoints that can still be brought back take {gone.nbytes}"
    )
    assert words[1].endswith(f"`mckpt gc --trash {store.url}` gives them up.")
