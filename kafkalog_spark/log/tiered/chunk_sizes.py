"""Sizes of transformed chunks as Aiven's manifest stores them (ChunkSizesBinaryCodec), zstd-compressed, in base64.

All numbers are big-endian. The count of sizes (u4) comes first. If it is 0, nothing follows; if it is 1, the size (u4)
follows. Otherwise these fields follow:

    base u4                     the smallest size without the last
    w u1                        bytes per difference, 1 to 4
    (count - 1) x w             the sizes without the last, minus base, unsigned
    last u4                     the last size, which may be below base
"""

from __future__ import annotations

import base64
import binascii
import struct

import numpy as np
import numpy.typing as npt
import zstandard

from kafkalog_spark.errors import CorruptManifest

MAX_CHUNKS = 1 << 20
"""Largest number of chunks of a segment. A segment has at most 2 GiB and a chunk has megabytes, so a larger count means
a damaged manifest. Without the limit, such a manifest would make the reader allocate gigabytes."""
_U32 = struct.Struct(">I")
_HEADER = struct.Struct(">IIB")  # count, base, w
Sizes = npt.NDArray[np.int64]
"""Sizes in bytes, of shape (count,)."""


def decode_chunk_sizes(data: bytes) -> Sizes:
    """Decode sizes in bytes, int64 of shape (count,). Raises CorruptManifest."""
    if len(data) < 4:
        raise CorruptManifest(f"transformedChunks has {len(data)} bytes, but the count alone takes 4")
    (count,) = _U32.unpack_from(data)
    check_count(count)
    if count < 2:
        _check_length(data, 4 + 4 * count, count)
        return np.array([_U32.unpack_from(data, 4)[0]] if count else [], np.int64)
    if len(data) < _HEADER.size:
        raise CorruptManifest(f"transformedChunks has {len(data)} bytes, but {count} chunks take more")
    _, base, width = _HEADER.unpack_from(data)
    if not 1 <= width <= 4:
        raise CorruptManifest(f"transformedChunks has {width} bytes per value, expected 1 to 4")
    _check_length(data, _HEADER.size + (count - 1) * width + 4, count)
    digits = np.frombuffer(data, np.uint8, (count - 1) * width, _HEADER.size).reshape(count - 1, width)
    padded = np.zeros((count - 1, 8), np.uint8)
    padded[:, 8 - width :] = digits
    values = np.empty(count, np.int64)
    values[:-1] = padded.view(">i8")[:, 0] + base
    values[-1] = _U32.unpack_from(data, len(data) - 4)[0]
    return values


def chunk_sizes_from_text(text: str, expected: int) -> Sizes:
    """Decode the sizes of `expected` chunks from the base64 text in a manifest.

    No more bytes are decompressed than `expected` sizes can have.

    Raises:
        CorruptManifest: If the text cannot be decoded or has another number of sizes.
    """
    check_count(expected)
    max_bytes = _HEADER.size + 4 * expected + 4
    try:
        frame = base64.b64decode(text, validate=True)
        announced = zstandard.get_frame_parameters(frame).content_size
        # The library allocates the announced size.
        if announced != zstandard.CONTENTSIZE_UNKNOWN and announced > max_bytes:
            raise CorruptManifest(f"transformedChunks decompresses to {announced} bytes, expected at most {max_bytes}")
        data = zstandard.ZstdDecompressor().decompress(frame, max_output_size=max_bytes, allow_extra_data=False)
    except (binascii.Error, ValueError) as error:
        raise CorruptManifest(f"transformedChunks is not base64: {error}") from None
    except zstandard.ZstdError as error:
        raise CorruptManifest(f"transformedChunks cannot be decompressed (zstd): {error}") from None
    sizes = decode_chunk_sizes(data)
    if len(sizes) != expected:
        raise CorruptManifest(
            f"transformedChunks lists {len(sizes)} chunks, but the segment's size requires {expected}"
        )
    return sizes


def encode_chunk_sizes(sizes: Sizes) -> bytes:
    """Encode sizes as the plugin does. Each size must be from 0 to 2^31 - 1."""
    count = len(sizes)
    if count < 2:
        return _U32.pack(count) + b"".join(_U32.pack(int(size)) for size in sizes)
    base = int(sizes[:-1].min())
    differences = sizes[:-1] - base
    width = max(1, (int(differences.max()).bit_length() + 7) // 8)
    digits = differences.astype(">u8").view(np.uint8).reshape(count - 1, 8)[:, 8 - width :]
    return _HEADER.pack(count, base, width) + digits.tobytes() + _U32.pack(int(sizes[-1]))


def chunk_sizes_to_text(sizes: Sizes) -> str:
    """Encode sizes to the base64 text in a manifest."""
    return base64.b64encode(zstandard.ZstdCompressor().compress(encode_chunk_sizes(sizes))).decode("ascii")


def check_count(count: int) -> None:
    """Raise CorruptManifest if a segment has more than MAX_CHUNKS chunks."""
    if count > MAX_CHUNKS:
        raise CorruptManifest(f"the manifest lists {count} chunks, expected at most {MAX_CHUNKS}")


def _check_length(data: bytes, size: int, count: int) -> None:
    if len(data) != size:
        raise CorruptManifest(f"transformedChunks has {len(data)} bytes, but its {count} chunks take {size}")
