"""Damage anywhere, of any size: afterwards every byte is right, or untouched and its tensors are named."""

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.repairing.repair_ground import content, flip, save, state
from tests.ground.stored.stored_files import folder, manifest_of

import model_checkpoint as mc
from model_checkpoint import CompressionLevel, errors

pytestmark = pytest.mark.usefixtures("small_chunks")


def positions(sizes):
    """Damage of a few bytes anywhere, and files lost."""
    flips = st.tuples(st.sampled_from(sorted(sizes)), st.floats(0, 1, exclude_max=True))
    return st.tuples(st.lists(flips, max_size=12), st.sets(st.sampled_from(sorted(sizes)), max_size=3))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["xor", "pq"])
@pytest.mark.parametrize("compression", [CompressionLevel.NONE, CompressionLevel.FAST], ids=str)
def test_random_damage_is_repaired_exactly_or_refused_by_name(tmp_path, scheme, compression):
    """Whatever is hit: afterwards every byte is right, or untouched and its tensors are named."""
    pristine, root = tmp_path / "pristine", tmp_path / "root"
    save(pristine, state(parts=6), parity=scheme, compression=compression)
    before, manifest = content(pristine), manifest_of(pristine)
    sizes = {name: len(data) for name, data in before.items() if name != "manifest.json"}
    seen = {True: 0, False: 0}

    @given(positions(sizes))
    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    def check(damage):
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(pristine, root)
        flips, lost = damage
        for name, share in flips:
            flip(folder(root) / name, int(share * sizes[name]))
        for name in lost:
            (folder(root) / name).unlink()
        hurt = content(root)

        report = mc.repair(root)

        seen[report.ok] += 1
        after = content(root)
        if report.ok:
            assert after == before
            assert mc.verify(root)[0].ok
            return
        named = {one.file for one in report.lost}
        assert all(after.get(name) == (hurt.get(name) if name in named else before[name]) for name in data_of(manifest))
        assert {f"{folder(root).name}: {name}" for name in tensors_hit(manifest, report)} == {*report.lost_tensors}
        with pytest.raises(errors.CorruptedCheckpoint, match=r"step-00000001"):
            mc.load(root, verify="full")

    check()
    assert min(seen.values()) > 2  # both outcomes were really met


def data_of(manifest):
    return [record.name for record in manifest.files]


def tensors_hit(manifest, report):
    """By the addresses of the lost chunks alone; a lost header takes every tensor of its file along."""
    for one in report.lost:
        number = data_of(manifest).index(one.file)
        ends = manifest.files[number].ends
        start, stop = (0, ends[-1]) if one.chunk == 0 else (ends[one.chunk - 1], ends[one.chunk])
        yield from (e.name for e in manifest.entries if e.file == number and e.start < stop and e.stop > start)
