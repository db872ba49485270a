"""Records of `__cluster_metadata`, KRaft's log (MetadataRecordSerde): of them the one that counts producer ids.

ProducerIdsRecord, a record's value: frame version, key and version as unsigned varints (1, 15, 0), then brokerId i32,
brokerEpoch i64, nextProducerId i64 and tagged fields.
"""

from __future__ import annotations

import struct

PRODUCER_IDS = b"\x01\x0f\x00"
"""How the value of a ProducerIdsRecord begins."""

_BODY = struct.Struct(">iqq")


def next_producer_id(value: bytes | memoryview) -> int | None:
    """The first id that no broker has got, of a ProducerIdsRecord; None of any other record."""
    begin = len(PRODUCER_IDS)
    if len(value) < begin + _BODY.size or value[:begin] != PRODUCER_IDS:
        return None
    return int(_BODY.unpack_from(value, begin)[2])
