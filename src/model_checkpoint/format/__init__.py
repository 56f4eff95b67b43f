"""Format: what a data file looks like (step 3 of a save). Valid safetensors, cut into chunks that have digests."""

from __future__ import annotations

from model_checkpoint.format.digests import ChunkDigest as ChunkDigest
from model_checkpoint.format.digests import content_digest as content_digest
from model_checkpoint.format.digests import digest_chunk as digest_chunk
from model_checkpoint.format.digests import file_record as file_record
from model_checkpoint.format.digests import sha256_of as sha256_of
from model_checkpoint.format.digests import xxh3_of as xxh3_of
from model_checkpoint.format.header import check_header as check_header
from model_checkpoint.format.layout import FileLayout as FileLayout
from model_checkpoint.format.layout import Tensor as Tensor
from model_checkpoint.format.layout import lay_out as lay_out
from model_checkpoint.format.layout import plain_layout as plain_layout
from model_checkpoint.format.soundness import check_entries as check_entries
from model_checkpoint.format.soundness import check_files as check_files
