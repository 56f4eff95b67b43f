"""The object store keeps the contract, against a quick server, a real one and one of Azure."""

import os

import numpy as np
import pytest

import model_checkpoint as mc
from model_checkpoint.errors import StepExists
from model_checkpoint.storage import ObjectStore, open_store
from model_checkpoint.testing.blobs import AT_ONCE
from model_checkpoint.testing.sidecar_suite import SidecarSuite
from model_checkpoint.testing.store_suite import StoreSuite

pytestmark = pytest.mark.s3


class OnServer:
    """A root of each test's own on the server whose fixture is called ``server``."""

    @pytest.fixture(autouse=True)
    def running(self, request):
        self.at = request.getfixturevalue(self.server)

    def make_store(self, folder):
        url = f"{self.at.scheme}://bucket/{type(self).__name__}/{folder.name}"
        return ObjectStore(url, store=self.at.client("bucket"))


class TestOnMoto(OnServer, StoreSuite):
    server = "moto"


class TestSidecarsOnMoto(OnServer, SidecarSuite):
    server = "moto"


@pytest.mark.slow
class TestSidecarsOnAzurite(OnServer, SidecarSuite):
    server = "azurite"


@pytest.mark.slow
class TestOnSeaweedFS(OnServer, StoreSuite):
    server = "seaweed"


@pytest.mark.slow
class TestOnAzurite(OnServer, StoreSuite):
    server = "azurite"


@pytest.fixture(params=["moto", *(pytest.param(name, marks=pytest.mark.slow) for name in ("seaweed", "azurite"))])
def url(request, monkeypatch, tmp_path):
    """A root on a server, reachable through the environment alone."""
    server = request.getfixturevalue(request.param)
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_"))]:
        monkeypatch.delenv(name)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return f"{server.scheme}://bucket/engine/{tmp_path.name}"


def test_the_front_door_works_on_a_url(url):
    state = {"weights": np.arange(5_000_000, dtype=np.float32), "bias": np.ones(3), "epoch": 3, "note": "x"}

    info = mc.save(url, state, step=100, metrics={"val_loss": 0.25})
    mc.save(url, {"weights": np.zeros(3)}, step=101)
    back = mc.load(url, step=100)

    assert info.path == f"{url}/checkpoints/step-00000100"
    assert np.array_equal(back["weights"], state["weights"])
    assert (back["epoch"], back["note"]) == (3, "x")
    assert [found.step for found in mc.list_checkpoints(url)] == [101, 100]
    assert all(report.ok for report in mc.verify(url))
    with pytest.raises(StepExists, match=r"already committed"):
        mc.save(url, state, step=100)
    mc.save(url, {"weights": np.ones(2)}, step=100, overwrite=True)
    assert mc.load(url, step=100)["weights"].tolist() == [1.0, 1.0]
    mc.delete(url, step=101)
    assert [found.step for found in mc.list_checkpoints(url)] == [100]
    mc.undelete(url)
    assert mc.load(url)["weights"].tolist() == [0.0, 0.0, 0.0]
    assert list(mc.collect_garbage(url, graces=AT_ONCE).alive) == []
    assert all(report.ok for report in mc.verify(url))


def test_a_consolidated_model_has_its_index(url):
    mc.save(url, {"model": {"w": np.ones(4)}}, step=1, format=mc.CheckpointFormat.CONSOLIDATED)

    assert all(report.ok for report in mc.verify(url, step=1))
    assert mc.load(url)["model"]["w"].tolist() == [1.0] * 4
    assert "model.safetensors.index.json" in open_store(url).files("step-00000001")


def test_compressed_incremental_and_background_saves_work_on_a_url(url):
    """Compressed files end up shorter than announced; unchanged ones are copied by the server, each whole by itself."""
    frozen = np.arange(6_000_000, dtype=np.int32) // 1000
    first = {"frozen": frozen, "w": np.zeros(1000)}
    second = {"frozen": frozen, "w": np.ones(1000)}

    plain = mc.save(url, first, step=0, incremental=True)
    mc.save(url, first, step=1, incremental=True)
    compressed = mc.save_async(url, second, step=2, compression=mc.CompressionLevel.FAST).result()
    mc.save_async(url, second, step=3, compression=mc.CompressionLevel.FAST, incremental=True).result()
    mc.delete(url, step=0)
    mc.delete(url, step=2)
    mc.collect_garbage(url, graces=AT_ONCE)

    assert compressed.size_bytes < plain.size_bytes / 4
    assert all(report.ok for report in mc.verify(url))
    assert np.array_equal(mc.load(url, step=1)["frozen"], frozen)
    assert np.array_equal(mc.load(url, step=3)["frozen"], frozen)
    assert np.array_equal(mc.load(url, step=3)["w"], np.ones(1000))
