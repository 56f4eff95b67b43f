"""How our values look in a notebook: escaped, small, and in the colours of the page."""

from html.parser import HTMLParser

import numpy as np
import pytest
import torch

import model_checkpoint as mc
from model_checkpoint.checkpoint.catalog.reindexing import ReindexReport, reindex
from model_checkpoint.checkpoint.loading.resuming import ResumeReport
from model_checkpoint.checkpoint.retention.disk_forecast import DiskForecast
from model_checkpoint.convert import adopt
from model_checkpoint.convert.adopting import AdoptReport
from model_checkpoint.database import EnhancedDatabaseConnection
from model_checkpoint.engine.reading.diff import Diff
from model_checkpoint.engine.root.describe import Description
from model_checkpoint.integrity import CheckpointVerifier
from model_checkpoint.notebook_html import html_table
from model_checkpoint.recompute import auto_checkpoint

NASTY = "<script>alert('x')</script>\u202e\x1b[31m"


class Reader(HTMLParser):
    """Reads HTML as a browser does: which tags there are, whether they close, what it says."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.text = [], set(), ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.seen.add(tag)
        assert all(name == "style" for name, _ in attributes)
        assert all("background" not in value and "#" not in value for _, value in attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def root(tmp_path):
    for step in (1, 2, 3):
        state = {"w": np.arange(9.0), NASTY: np.zeros(2)}
        mc.save(tmp_path / "run", state, step=step, metrics={NASTY: 0.5}, metadata={"note": NASTY})
    return tmp_path / "run"


def shown(value):
    page = Reader(value._repr_html_())
    assert page.seen <= {"div", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    assert "\x1b" not in page.text
    assert "\u202e" not in page.text
    return page.text


def test_a_checkpoint(root):
    mc.tag(root, "paper")
    mc.note(root, NASTY)

    text = shown(mc.list_checkpoints(root)[0])

    assert f"{root}/checkpoints/step-00000003" in text
    assert "<script>alert" in text  # as text
    assert "paper" in text


def test_a_plan_tells_why(root):
    text = shown(mc.prune(root, keep=[mc.last(1)], dry_run=True))

    assert "keeps 1, drops 2" in text
    assert "last 1: number 2" in text


def test_a_memory_plan_tells_what_becomes_of_each_stage():
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU()) for _ in range(4)])
    plan = auto_checkpoint(model, 0.7, torch.randn(16, 32)).plan

    text = shown(plan)

    assert all(stage.name in text and fate in text for stage, fate in zip(plan.stages, plan.fates(), strict=True))
    assert f"{plan.peak_bytes / 1e6:.2f} MB" in text


def test_reports_of_loading_verifying_and_repairing(root):
    told = []
    with pytest.warns(mc.CheckpointWarning):
        mc.load(root, into={"w": np.zeros(9), "new": np.zeros(1)}, strict=False, report=told.append)
    (data,) = (root / "checkpoints/step-00000003").glob("*.safetensors")
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")

    assert "new" in shown(told[0])
    assert "1 damaged" in shown(mc.verify(root, step=3)[0])
    assert "healthy" in shown(mc.verify(root, step=2)[0])
    assert "rebuilt" in shown(mc.repair(root))
    assert "3 healthy" in shown(CheckpointVerifier.of_root(root).scrub())


def test_differences_descriptions_and_forecasts(root):
    mc.save(root, {"w": np.arange(9.0) + 1, NASTY: np.zeros(2)}, step=4)

    assert "1 tensors changed" in shown(mc.diff(f"{root}@3", f"{root}@4"))
    assert "a resume would lack" in shown(mc.describe(root))
    assert "bytes are free" in shown(mc.forecast(root))
    assert "last 2: holds 2 checkpoints" in shown(mc.forecast(root, keep=[mc.last(2)]))


def test_reports_of_resuming_reindexing_and_adopting(root, tmp_path):
    (root / "checkpoints/step-00000002/manifest.json").write_text(NASTY)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "step-5.pt").write_text(NASTY)
    with EnhancedDatabaseConnection("sqlite://") as catalog:
        indexed = reindex(root, catalog)
    with (
        mc.ExperimentTracker("a", database_url=f"sqlite:///{tmp_path}/runs.db") as run,
        mc.EnhancedCheckpointManager(run, tmp_path / "managed") as manager,
    ):
        model = torch.nn.Linear(2, 2)
        manager.save_checkpoint(model, step=7)
        resumed = manager.resume(model=model)

    assert "cannot be read" in shown(indexed)
    assert "step 7" in shown(resumed)
    assert "nothing to resume from" in shown(ResumeReport())
    assert "failed" in shown(adopt(tmp_path / "theirs", tmp_path / "adopted"))


def test_every_report_has_a_face():
    """Values that people get back and look at; a new one belongs on this list."""
    faces = [mc.CheckpointInfo, ResumeReport, ReindexReport, AdoptReport, Diff, Description, DiskForecast]

    assert [one.__name__ for one in faces if not hasattr(one, "_repr_html_")] == []


def test_long_tables_are_cut_and_say_so():
    text = Reader(html_table("t", ["n"], [[number] for number in range(150)])).text

    assert "and 50 more" in text
    assert "149" not in text
