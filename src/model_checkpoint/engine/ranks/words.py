"""Words: what ranks say to each other as bytes, of which no rank has to read more than it can bear."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import zstandard

from model_checkpoint.errors import LimitExceeded
from model_checkpoint.options import MIB

Word = dict[str, Any]

LONGEST_WORD = 32 * MIB
_UNPACKED = 16 * LONGEST_WORD  # of one that travels compressed
_COMPRESS_ABOVE = 64 << 10
_MAGIC = b"\x28\xb5\x2f\xfd"


def encode_word(word: Mapping[str, Any]) -> bytes:
    """A message as bytes; one that is too long is refused here, not on the ranks that would have to read it."""
    data = msgspec.json.encode(word)
    plain = len(data)
    if plain > _COMPRESS_ABOVE:
        data = zstandard.ZstdCompressor(level=3, write_content_size=True).compress(data)
    if len(data) > LONGEST_WORD or plain > _UNPACKED:
        raise LimitExceeded(
            f"what this rank has of its own takes {len(data)} bytes to tell the others, the limit is {LONGEST_WORD}. "
            "Put large per-rank values into arrays, or give ranks the same structure."
        )
    return data


def decode_word(data: bytes) -> Word:
    """The message in bytes of another rank; never an object, never larger than the limit."""
    packed = data.startswith(_MAGIC)
    size = zstandard.frame_content_size(data) if packed else len(data)
    if len(data) > LONGEST_WORD or not 0 <= size <= (_UNPACKED if packed else LONGEST_WORD):
        raise LimitExceeded(
            f"a word of another rank takes {len(data)} bytes, {size} unpacked; at most {LONGEST_WORD} and {_UNPACKED} "
            "are read. Run the same release of this library on all ranks."
        )
    if packed:
        data = zstandard.ZstdDecompressor().decompress(data)
    word: Word = msgspec.json.decode(data, type=dict[str, Any])
    return word
