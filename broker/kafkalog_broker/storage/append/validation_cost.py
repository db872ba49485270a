"""Where a batch is validated: at once, in the event loop, or in a thread, because it would hold everybody up.

A hand-over to a thread and back takes 0.1 ms, and several ms when both threads want the interpreter; decompressing a
batch of the usual size takes less. So a thread gets what may take longer than about 2 ms. Nothing that the batch
says of itself is believed but its number of records: more than that many are not walked over.

Measured on one core: gzip decompresses 0.2 to 0.65 GB/s, zstd 0.5 to 1.4, snappy and lz4 1 to 12. Records are walked
over in 10 to 20 ns each, and twice that when some are refused or renumbered; a header takes 3 ns, and a megabyte has
room for half a million of them.
"""

from __future__ import annotations

import struct

from kafkalog_spark.log.format import layout
from kafkalog_spark.log.format.layout import Codec

AT_ONCE: dict[int, int] = {
    Codec.NONE: 2 << 20,
    Codec.GZIP: 256 << 10,
    Codec.SNAPPY: 1 << 20,
    Codec.LZ4: 1 << 20,
    Codec.ZSTD: 1 << 20,
}
"""Decompressed bytes of one batch that the event loop has the time for."""

RECORDS_AT_ONCE = 50_000
"""Records of one batch that it has the time for."""

PIECES_AT_ONCE = 200
"""Blocks or members of a compressed batch: gzip takes up to 10 us for each, the others 1 to 2."""

PACKED_AT_ONCE = 64 << 10
"""Decompressed bytes of a batch that is compressed again, which is ten times the work: gzip packs 75 MB/s."""

USUAL_RATIO = 4
"""To how many times its size a batch decompresses, as long as it is not known."""

_COUNT = struct.Struct(">i")
_UNKNOWN_CODEC = 0  # such a batch is refused before its records are looked at


def bytes_at_once(batch: memoryview) -> int:
    """How far the batch may decompress in the event loop, in bytes; 0 when a thread should have it from the beginning.

    A batch that is no batch is for validation to tell.
    """
    if len(batch) < layout.RECORDS_AT:
        return AT_ONCE[Codec.NONE]
    codec = batch[layout.ATTRIBUTES_AT + 1] & layout.ATTRIBUTE_CODEC
    if not codec and len(batch) <= RECORDS_AT_ONCE:  # no room for more records than that, whatever it says
        return AT_ONCE[Codec.NONE]
    limit = AT_ONCE.get(codec, AT_ONCE[_UNKNOWN_CODEC])
    (count,) = _COUNT.unpack_from(batch, layout.RECORD_COUNT_AT)
    usual = len(batch) * USUAL_RATIO if codec else len(batch)
    return limit if usual <= limit and count <= RECORDS_AT_ONCE else 0
