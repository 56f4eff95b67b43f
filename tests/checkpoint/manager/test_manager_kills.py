"""Killed before any change of a deletion, a retention or a return: the next manager finishes it, row and files."""

import shutil
from functools import partial

import numpy as np
import pytest
from tests.database.database_copies import copies_of
from tests.ground.change_kills import changes

import model_checkpoint as mc
from model_checkpoint import EnhancedCheckpointManager
from model_checkpoint.database import Experiment

RUN = "r"
DEEDS = {
    "delete": lambda manager, ids: manager.delete_checkpoint(ids[1]),
    "retention": lambda manager, ids: manager.prune(RUN, keep=[mc.last(1)]),
    "restore": lambda manager, ids: manager.restore_checkpoint(ids[0]),
}
BEFORE = {1, 2, 3}  # the steps that are there
AFTER = {"delete": {2, 3}, "retention": {3}, "restore": {0, 1, 2, 3}}


class Ground:
    """A run of four checkpoints of which the first is deleted, as often as a test wants it."""

    def __init__(self, folder, copies):
        self._folder, self._copies, self._database = folder, copies, copies.empty()
        with self.opened(self._database) as manager:
            manager.connection.save_experiment(Experiment(id=RUN, name="r"))
            self.ids = [
                manager.save_checkpoint({"w": np.full(2, step)}, step=step, loss=float(step), experiment_id=RUN)
                for step in range(4)
            ]
            manager.delete_checkpoint(self.ids[0])
            manager.connection.close()
        shutil.copytree(folder / "root", folder / "first")

    def opened(self, url):
        return EnhancedCheckpointManager(None, str(self._folder / "root"), max_checkpoints=None, database_url=url)

    def anew(self):
        """A database as it was at first, to be used in a ``with`` block; the root is, too."""
        shutil.rmtree(self._folder / "root")
        shutil.copytree(self._folder / "first", self._folder / "root")
        return self._copies.another(self._database)

    def do(self, deed, url):
        DEEDS[deed](self.opened(url), self.ids)


def whole(manager, ids):
    """The steps that are there, after a look at everything: rows, files, flags, bytes and trash agree."""
    rows = {row.id: row.step for row in manager.list_checkpoints(RUN)}

    assert rows == {info.id: info.step for info in mc.list_checkpoints(manager.root)}
    assert manager.connection.open_intents() == []
    assert [row.step for row in manager.list_checkpoints(RUN, best_only=True)] == [min(rows.values())]
    for id in ids:
        if id not in rows:
            manager.restore_checkpoint(id)
        step = manager.get_checkpoint(id).step
        assert manager.load_checkpoint(id)["model_state_dict"]["w"].tolist() == [step, step]
    return {*rows.values()}


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
@pytest.mark.parametrize("deed", DEEDS)
def test_killed_before_any_change_it_is_finished_or_was_never_begun(request, tmp_path, deed, kind):
    ground = Ground(tmp_path, copies_of(request, tmp_path, kind))
    with ground.anew() as url:
        total, seen = changes(partial(ground.do, deed, url)), []
    assert total > 5

    for die_at in range(1, total + 1):
        with ground.anew() as url:
            changes(partial(ground.do, deed, url), die_at=die_at)
            with ground.opened(url) as manager:
                manager._begin()
                seen.append(whole(manager, ground.ids))
                manager.connection.close()

    assert seen[0] == BEFORE
    assert seen[-1] == AFTER[deed]
    if deed != "retention":  # which may have had time for some
        assert {frozenset(one) for one in seen} == {frozenset(BEFORE), frozenset(AFTER[deed])}
