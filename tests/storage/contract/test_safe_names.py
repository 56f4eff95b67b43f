"""Names: what may reach a medium, and keys of the trash and of objects that can be taken apart again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_checkpoint.errors import CheckpointNotFound, UnsafeName
from model_checkpoint.storage.contract.host import Moment
from model_checkpoint.storage.contract.names import (
    TrashToken,
    check_attempt,
    check_name,
    check_new_file,
    is_name,
)
from model_checkpoint.storage.objects.requests.keys import (
    deleted_key,
    deletion_of,
    file_key,
    is_of,
    plain_name,
    random_ids,
    stored_name,
)

names = st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True).filter(is_name)
attempts = st.from_regex(r"[0-9a-f]{1,32}", fullmatch=True)
tokens = st.builds(
    TrashToken,
    name=names,
    nanoseconds=st.integers(0, 10**20 - 1),
    salt=st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
    order=st.integers(1, 10**9 - 1),
    boot=st.from_regex(r"[0-9a-f]{8}", fullmatch=True),
    milliseconds=st.integers(0, 10**12 - 1),
)


@pytest.mark.parametrize("name", ["a", "step-00000100", "...", ".a", "A_b.c-d", "x" * 128])
def test_a_safe_name_is_itself(name):
    assert check_name(name, "here") == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a~b", "é", "a\n", "x" * 129])
def test_a_name_that_leaves_hides_or_misleads_is_refused(name):
    with pytest.raises(UnsafeName, match=r"^here: the name .* is not safe"):
        check_name(name, "here")


@pytest.mark.parametrize("attempt", ["", "a.b", "a/b", "x" * 65, "a\n"])
def test_an_attempt_id_that_is_no_word_is_refused(attempt):
    with pytest.raises(UnsafeName, match=r"^here: the attempt id .* is not safe"):
        check_attempt(attempt, "here")
    assert check_attempt("x" * 64, "here") == "x" * 64


@pytest.mark.parametrize("file", ["manifest.json", "MANIFEST.json", "Manifest.TMP", "weights"])
def test_a_file_that_a_mac_would_mix_up_is_refused(file):
    with pytest.raises(UnsafeName, match="is reserved, or differs from another one only in case"):
        check_new_file(file.upper(), {"weights"}, "here")
    assert check_new_file("weights2", {"weights"}, "here") == "weights2"


@given(tokens)
def test_a_key_of_the_trash_can_be_read_again(token):
    assert TrashToken.parse(str(token)) == token
    plain = TrashToken(name=token.name, nanoseconds=token.nanoseconds, salt=token.salt)
    assert TrashToken.find(str(plain)) == plain
    assert plain.rank < token.rank


@pytest.mark.parametrize(
    "text",
    [
        "step-1", "~1~00000000000000ff", "..~1~00000000000000ff", ".~1~00000000000000ff", "a~b~00000000000000ff",
        "a~1~00000000000000f", "a~1~00000000000000fff", "a~1~7.1f~00000000000000ff", "a~1~00000000000000ff ", "",
    ],
)  # fmt: skip
def test_what_is_no_key_of_the_trash_is_said_to_be_none(text):
    assert TrashToken.find(text) is None
    with pytest.raises(CheckpointNotFound, match=r"^here: .* is no key of the trash"):
        TrashToken.parse(text, "here")


def test_the_age_of_a_deletion_is_known_in_its_own_boot_only():
    boot, other = "1f2e3d4c-0000-0000-0000-000000000000", "2f2e3d4c-0000-0000-0000-000000000000"
    token = TrashToken.fresh("a", order=3, moment=Moment(wall=5, boot=boot, since_boot=10.0015))

    assert TrashToken.parse(str(token)) == token
    assert (token.order, token.boot, token.milliseconds, token.nanoseconds) == (3, "1f2e3d4c", 10001, 5)
    assert token.age(Moment(wall=0, boot=boot, since_boot=12.001)) == pytest.approx(2)
    assert token.age(Moment(wall=0, boot=other, since_boot=12.001)) is None


@given(names.filter(lambda name: "~" not in name), attempts, attempts)
def test_no_two_attempts_ever_write_one_key(file, mine, other):
    stored = stored_name(file, mine)

    assert plain_name(stored, mine) == file
    assert is_of(stored, mine)
    if "~" in stored and mine != other:
        assert plain_name(stored, other) is None


@given(tokens, st.sampled_from(["manifest.json", "files.json"]))
def test_what_tells_of_a_deleted_version_is_known_by_its_key(token, kind):
    prefix = file_key(token.name, "")

    found, what = deletion_of(token.name, deleted_key(token, kind).removeprefix(prefix))

    assert (found.name, found.nanoseconds, found.salt, what) == (token.name, token.nanoseconds, token.salt, kind)
    assert deletion_of(token.name, kind) is None


def test_only_whole_words_are_ids():
    one, two = "0" * 31 + "a", "f" * 32

    assert random_ids(f"r0-{one}.bin~{two}") == {one, two}
    assert random_ids(f"r0-{one}0.bin") == random_ids(one[:31]) == frozenset()
