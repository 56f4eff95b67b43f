"""Format: what a data file looks like (step 3 of a save). Valid safetensors, cut into chunks that have digests.

layout           where each tensor lies in one data file, and where its chunks end. Pure arithmetic.
header           read the head of a data file as if an enemy had written it.
stored           the dtypes a safetensors header can say, and how many bits each takes.
digests          how bytes are fingerprinted, once, while they are hot in the cache.
subchunks        parts of a chunk with digests of their own, where little of it may be wanted.
sha256           SHA-256 of several chunks at once: side by side where the processor can, else one after the other.
frames           a data file whose tensors are compressed chunks.
byte_planes      compress the bytes of one chunk, and give them back exactly.
parity           what a parity file looks like: sums of a checkpoint's files, from which lost ones follow.
galois           those sums, and how lost columns follow from them.
galois_words     those sums by NumPy, where nothing was compiled.
galois_field     the field they are made in.
manifest_checks  does a manifest make sense by itself? Checked before a file is opened or a byte allocated.
"""

from __future__ import annotations

from model_checkpoint.format.byte_planes import MOST_WIDTH as MOST_WIDTH
from model_checkpoint.format.byte_planes import RAW as RAW
from model_checkpoint.format.byte_planes import Compressor as Compressor
from model_checkpoint.format.byte_planes import FrameBroken as FrameBroken
from model_checkpoint.format.byte_planes import decompress as decompress
from model_checkpoint.format.digests import ChunkDigest as ChunkDigest
from model_checkpoint.format.digests import content_digest as content_digest
from model_checkpoint.format.digests import digest_chunks as digest_chunks
from model_checkpoint.format.digests import file_record as file_record
from model_checkpoint.format.digests import sha256_of as sha256_of
from model_checkpoint.format.digests import xxh3_of as xxh3_of
from model_checkpoint.format.frames import frame_entries as frame_entries
from model_checkpoint.format.frames import frame_header as frame_header
from model_checkpoint.format.frames import planes_frame as planes_frame
from model_checkpoint.format.frames import raw_frame as raw_frame
from model_checkpoint.format.frames import reserve_frames as reserve_frames
from model_checkpoint.format.frames import stored_xxh3 as stored_xxh3
from model_checkpoint.format.galois import TooManyLost as TooManyLost
from model_checkpoint.format.galois import add_up as add_up
from model_checkpoint.format.galois import lost_columns as lost_columns
from model_checkpoint.format.header import check_header as check_header
from model_checkpoint.format.layout import FileLayout as FileLayout
from model_checkpoint.format.layout import Tensor as Tensor
from model_checkpoint.format.layout import lay_out as lay_out
from model_checkpoint.format.layout import opaque_layout as opaque_layout
from model_checkpoint.format.layout import plain_layout as plain_layout
from model_checkpoint.format.manifest_checks import check_entries as check_entries
from model_checkpoint.format.manifest_checks import check_files as check_files
from model_checkpoint.format.sha256 import sha256_each as sha256_each
from model_checkpoint.format.subchunks import SMALL_PIECE as SMALL_PIECE
from model_checkpoint.format.subchunks import is_intact as is_intact
from model_checkpoint.format.subchunks import subchunk_digests as subchunk_digests
