"""Manifest: the record of one checkpoint, written last; whoever can read it can read the checkpoint.

record         the values a manifest is made of.
layout_record  which rank holds which part of an array.
rank_manifest  what one of many ranks has written.
codec          a manifest as bytes and back.
scalars        what JSON cannot say exactly becomes a tagged array.
"""

from __future__ import annotations

from model_checkpoint.manifest.codec import COMPRESSED as COMPRESSED
from model_checkpoint.manifest.codec import HEAD_BYTES as HEAD_BYTES
from model_checkpoint.manifest.codec import INCOMPLETE as INCOMPLETE
from model_checkpoint.manifest.codec import OPAQUE as OPAQUE
from model_checkpoint.manifest.codec import RANKS as RANKS
from model_checkpoint.manifest.codec import decode as decode
from model_checkpoint.manifest.codec import decode_head as decode_head
from model_checkpoint.manifest.codec import decode_summary as decode_summary
from model_checkpoint.manifest.codec import encode as encode
from model_checkpoint.manifest.layout_record import HeldRegion as HeldRegion
from model_checkpoint.manifest.layout_record import Layout as Layout
from model_checkpoint.manifest.layout_record import Placement as Placement
from model_checkpoint.manifest.rank_manifest import RankManifest as RankManifest
from model_checkpoint.manifest.rank_manifest import StoredPiece as StoredPiece
from model_checkpoint.manifest.rank_manifest import decode_rank as decode_rank
from model_checkpoint.manifest.rank_manifest import encode_rank as encode_rank
from model_checkpoint.manifest.record import FORMAT_VERSION as FORMAT_VERSION
from model_checkpoint.manifest.record import PARITY_SUMS as PARITY_SUMS
from model_checkpoint.manifest.record import SUBCHUNK_BYTES as SUBCHUNK_BYTES
from model_checkpoint.manifest.record import Entry as Entry
from model_checkpoint.manifest.record import FileCopy as FileCopy
from model_checkpoint.manifest.record import FileRecord as FileRecord
from model_checkpoint.manifest.record import Frame as Frame
from model_checkpoint.manifest.record import Head as Head
from model_checkpoint.manifest.record import JoinedManifest as JoinedManifest
from model_checkpoint.manifest.record import Manifest as Manifest
from model_checkpoint.manifest.record import RankRecord as RankRecord
from model_checkpoint.manifest.record import Summary as Summary
from model_checkpoint.manifest.scalars import Node as Node
from model_checkpoint.manifest.scalars import pack as pack
from model_checkpoint.manifest.scalars import unpack as unpack
