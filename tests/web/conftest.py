"""What the browser tests stand on: one big catalog, small ones that may be changed, their servers, one browser."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from tests.ground.big_catalog import build_catalog
from tests.ground.requirements import missing
from tests.web.visitor import Visitor

from model_checkpoint.api.application import make_open_app
from model_checkpoint.api.gate.admission import Admission
from model_checkpoint.api.gate.gatekeeper import Gatekeeper
from model_checkpoint.api.library.shelves import Library
from model_checkpoint.api.serving import listening_socket
from model_checkpoint.database import EnhancedDatabaseConnection, Metric

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium")
AXE = Path(sys.prefix, "axe/node_modules/axe-core/axe.min.js")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def serving(places: list[str], cache: Path, *, token: str = "t", read_only: bool = False) -> Iterator[str]:
    """A real server on a free port, in a thread of this process."""
    library = Library(places, cache_dir=str(cache), read_only=read_only)
    with listening_socket("127.0.0.1", 0) as bound:
        address = f"http://127.0.0.1:{bound.getsockname()[1]}"
        inner = make_open_app(library)
        app = Gatekeeper(inner, Admission(hosts=frozenset({"127.0.0.1"}), token=token))
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield address
        Visitor.ended.add(address)
        inner.state.services.hub.end()  # whoever listens is let go first
        server.should_exit = True
        thread.join(20)


def add_point(catalog, at: float | None = None) -> None:
    """Log one more step of the run that is alive, now or at a time."""
    with EnhancedDatabaseConnection(catalog.url) as connection:
        step = connection.get_experiment(catalog.alive).step + 1
        connection.save_metric(Metric(catalog.alive, "val_loss", 0.1234, step, at))


@pytest.fixture(scope="session")
def big(tmp_path_factory):
    """200 runs, 10,000 checkpoints and 2 million points; built by the first of the workers that asks."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    note = shared / "web-catalog.pickle"
    with (shared / "web-catalog.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.exists():
            note.write_bytes(pickle.dumps(build_catalog(shared / "web-catalog")))
        return pickle.loads(note.read_bytes())


@pytest.fixture(scope="session")
def served(big, tmp_path_factory):
    """The server of the big catalog."""
    with serving([str(big.folder)], tmp_path_factory.mktemp("cache")) as address:
        yield address


@pytest.fixture
def small(tmp_path):
    """A catalog with 13 runs, which a test may change."""
    return build_catalog(tmp_path / "runs", runs=12, checkpoints=120, points=6000)


@pytest.fixture(scope="module")
def browser():
    """One headless Chromium; for a module at most, since no other test can run an event loop while it is driven."""
    if CHROMIUM is None:
        missing("chromium is not installed; tests/install_servers.sh does that")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        one = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield one
        one.close()


@pytest.fixture(scope="session")
def axe():
    """The source of axe-core."""
    if not AXE.exists():
        missing("axe-core is not installed; tests/install_servers.sh does that")
    return AXE.read_text(encoding="utf-8")


@pytest.fixture
def visit(browser):
    """Makes visitors, each with a tab of its own; what went wrong in any of them fails the test at its end."""
    visitors: list[Visitor] = []

    def make(address: str, **look) -> Visitor:
        visitors.append(Visitor(browser, address, **look))
        return visitors[-1]

    yield make
    wrongs = [wrong for one in visitors for wrong in one.wrongs]
    for one in visitors:
        one.close()
    assert not wrongs
