"""The trials tell kept from lost and refused from believed, and the README quotes what they found."""

import contextlib
import random
from pathlib import Path

import pytest
from bench.measuring.contenders import OURS
from bench.measuring.states import many_small
from proof.__main__ import main
from proof.bit_flip import Flip, draw_spots, flip_bits
from proof.child import ChildDied, result_of
from proof.power_cut import Cut, Ending, check_harness, cut_power
from proof.reading import CONTENDERS, Reading
from proof.report import markdown, short_rows
from tests.ground.disks.power import Disk, PowerUnavailable
from tests.ground.requirements import without_power

ROOT = Path(__file__).parents[2]


def cut(name, ending, *, flushed=False):
    return Cut(contender=name, disk="ext4", flushed=flushed, ending=ending)


def flip(name, reading, *, payload=True):
    return Flip(contender=name, payload=payload, reading=reading)


def test_everything_but_kept_counts_as_lost_and_only_other_values_as_believed():
    cuts = [cut("DCP", ending) for ending in Ending] + [cut(OURS.name, Ending.KEPT)]
    flips = [flip("DCP", reading) for reading in Reading] + [flip(OURS.name, Reading.NAMED, payload=False)]

    rows = {
        row[0]: dict(zip([one.name for one in CONTENDERS], row[1:], strict=True)) for row in short_rows(cuts, flips)
    }

    lost = rows["acknowledged saves lost by a power cut right after"]
    assert (lost[OURS.name], lost["DCP"], lost["Orbax"]) == ("**0 of 1**", "3 of 4", "")
    assert rows["one flipped bit in the values: read as good"]["DCP"] == "1 of 5"
    assert rows["flipped bits refused by an error that names file or tensor"]["DCP"] == "1 of 5"
    assert rows["flipped bits refused by an error that names file or tensor"][OURS.name] == "**1 of 1**"


def test_the_report_counts_every_ending_and_reading():
    cuts = [cut("DCP", Ending.TORN), cut("DCP", Ending.GONE), cut("DCP", Ending.KEPT, flushed=True)]
    flips = [flip("DCP", Reading.OTHER), flip("DCP", Reading.REFUSED, payload=False), flip("DCP", Reading.DIED)]

    text = markdown(cuts, flips, {"kernel": "6"})

    assert "| DCP | ext4 | no | 2 | 0 | 1 | 1 | 0 |" in text
    assert "| DCP | ext4 | yes | 1 | 1 | 0 | 0 | 0 |" in text
    assert "| DCP | values | 2 | 0 | 0 | 1 | 1 | 0 |" in text
    assert "| DCP | elsewhere | 1 | 0 | 1 | 0 | 0 | 0 |" in text


def test_the_readme_quotes_the_report_word_for_word():
    text = (ROOT / "docs" / "proof.md").read_text()
    short = text.partition("## In short\n\n")[2].partition("\n\n")[0].splitlines()[2:]

    assert len(short) == 5
    assert [row for row in short if row not in (ROOT / "README.md").read_text()] == []


def test_bits_are_drawn_from_the_values_and_from_the_rest(tmp_path):
    state = many_small(2, 100)
    values = [tensor.numpy().tobytes() for tensor in state.flat.values()]
    (tmp_path / "a").write_bytes(b"head" + values[1] + b"mid" + values[0] + b"tail")
    (tmp_path / "empty").touch()
    (tmp_path / "small").write_bytes(b"x" * 9)
    (tmp_path / "compressed").write_bytes(b"z" * 300)

    spots = draw_spots(tmp_path, state, count=500, draw=random.Random(0))

    elsewhere = {(spot.path.name, spot.byte) for spot in spots if not spot.payload}
    head, middle, tail = range(4), range(404, 407), range(807, 811)
    assert elsewhere == {*(("a", at) for at in (*head, *middle, *tail)), *(("small", at) for at in range(9))}
    assert {spot.path.name for spot in spots if spot.payload} == {"a", "compressed"}
    assert [sum(spot.payload is kind for spot in spots) for kind in (True, False)] == [500, 500]


def test_a_flipped_bit_is_refused_by_us_and_believed_by_torch(tmp_path):
    ours = list(flip_bits(OURS.name, tmp_path / "ours", count=1))
    theirs = list(flip_bits("torch.save", tmp_path / "theirs", count=1))

    assert [one.reading for one in ours] == [Reading.NAMED] * 2
    assert [one.reading for one in theirs if one.payload] == [Reading.OTHER]


@pytest.mark.slow
@pytest.mark.fault
def test_a_power_cut_leaves_our_save_and_takes_that_of_torch(tmp_path):
    try:
        disk = Disk(tmp_path, "ext4")
    except PowerUnavailable as error:
        without_power(str(error))
    with contextlib.ExitStack() as after:
        after.callback(disk.unmount)
        check_harness(disk, "torch.save")

        assert cut_power(disk, "ext4", OURS.name, flushed=False).ending is Ending.KEPT
        assert cut_power(disk, "ext4", "torch.save", flushed=False).ending is Ending.GONE
        assert cut_power(disk, "ext4", "torch.save", flushed=True).ending is Ending.KEPT


def test_a_process_that_dies_or_hangs_is_a_result():
    with pytest.raises(ChildDied, match="ended with code 3"), result_of(die):
        pass
    with pytest.raises(ChildDied, match=r"no result within 0\.2 s"), result_of(hang, seconds=0.2):
        pass


def die():
    import os

    os._exit(3)


def hang():
    import threading

    threading.Event().wait()


def test_a_call_that_fails_says_so():
    with pytest.raises(RuntimeError, match="ValueError: no"), result_of(refuse):
        pass


def refuse():
    raise ValueError("no")


def test_an_unknown_library_is_refused_with_the_known_ones(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "pickle"])

    assert "choose from" in capsys.readouterr().err
