"""What is asked of a real Kafka once, and of our broker in every run: message sets of all kinds, whole and damaged,
and every answer to the versions of the protocol guides.

Sets are kept with the answers, as bytes: codecs give other bytes with other releases of their libraries.
"""

from __future__ import annotations

import base64
import hashlib
import random
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from tests.broker.old_versions.helpers.old_client import OldClient, summary
from tests.log.helpers.batch_builder import V2Record, batch
from tests.log.helpers.legacy_builder import (
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    NONE,
    SNAPPY,
    LegacyRecord,
    compressed,
    message,
    message_set,
    sized,
    wrapper,
)

TIME = 1_700_000_000_000
SETS = 240
TOPICS: Mapping[str, Mapping[str, str]] = {
    "sets": {},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "gzipped": {"compression.type": "gzip"},
    "compacted": {"cleanup.policy": "compact"},
    "damage": {},
    "offsets": {},
}


def digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]


def random_sets(seed: int = 7) -> Iterator[tuple[str, int, bytes]]:
    """(topic, version of Produce, set): a third of magic 0, of magic 1 and of v2 batches, in every codec of theirs."""
    draw = random.Random(seed)

    def some() -> bytes | None:
        way = draw.random()
        size = draw.choice((1, 5, 30, 30, 300))
        return None if way < 0.15 else b"" if way < 0.25 else bytes(draw.choice(b"abcdef") for _ in range(size))

    for number in range(SETS):
        topic = draw.choice(("sets", "sets", "append-time", "gzipped"))
        count = draw.choice((1, 1, 2, 5, 20))
        records = [LegacyRecord(n, some(), some(), TIME + draw.randrange(-1000, 1000)) for n in range(count)]
        codec, magic = draw.choice((NONE, GZIP, SNAPPY, LZ4)), number % 3
        if magic == 2:
            headers = ((b"h", b"x"),) if draw.random() < 0.5 else ()
            made = [V2Record(n, one.timestamp, one.key, one.value, headers) for n, one in enumerate(records)]
            yield topic, 3, batch(0, made, codec=codec, leader_epoch=-1)
        elif codec == NONE:
            yield topic, draw.choice((0, 1, 2)) if magic == 0 else 2, message_set(magic, records)
        else:
            yield topic, 2, wrapper(magic, codec, records, xerial=draw.random() < 0.5)


def _with_body(body: bytes) -> bytes:
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def damaged_sets() -> dict[str, bytes]:
    """Return invalid and unusual message sets by name."""

    def good(key: bytes | None = b"k") -> bytes:
        return message(1, 0, key, b"v", TIME)

    def packed(data: bytes, **changes: Any) -> bytes:
        return message(1, changes.get("offset", 0), None, compressed(GZIP, data), TIME, GZIP)

    five = message_set(1, [LegacyRecord(n, b"k", b"v", TIME) for n in range(5)])
    other_magic = bytearray(good())
    other_magic[16] = 3
    struct.pack_into(">I", other_magic, 12, zlib.crc32(other_magic[16:]))
    return {
        "one of magic 0": message(0, 5, b"k", b"v"),
        "two of magic 1": good() + good(),
        "nothing": b"",
        "the last one cut off": good() + good()[:20],
        "only one, cut off": good()[:20],
        "eleven bytes": good()[:11],
        "magic 0 and 1": message(0, 0, b"k", b"v") + good(),
        "a wrong CRC": good()[:-1] + b"x",
        "a wrong CRC in the second": good() + good()[:-1] + b"x",
        "a size of 5": struct.pack(">qi", 0, 5) + good()[12:],
        "magic 3": bytes(other_magic),
        "timestamp type LogAppendTime": message(1, 0, b"k", b"v", TIME, LOG_APPEND_TIME),
        "zstd": message(1, 0, b"k", b"v", TIME, 4),
        "two wrappers": wrapper(1, GZIP, [LegacyRecord(0, b"a", b"b", TIME)]) * 2,
        "a wrapper and a message": wrapper(1, GZIP, [LegacyRecord(0, b"a", b"b", TIME)]) + good(),
        "a message and a wrapper": good() + wrapper(1, GZIP, [LegacyRecord(0, b"a", b"b", TIME)]),
        "a wrapper and half a message": wrapper(1, GZIP, [LegacyRecord(0, b"a", b"b", TIME)]) + good()[:20],
        "a wrapper in a wrapper": packed(wrapper(1, GZIP, [LegacyRecord(0, b"a", b"b", TIME)])),
        "a wrapper of another magic": packed(message(0, 0, b"a", b"b")),
        "a wrong CRC in a wrapper": packed(good()[:-1] + b"x"),
        "a wrapper of nothing": packed(b""),
        "a wrapper whose last message is cut off": packed(good() + good()[:20]),
        "a size of 5 in a wrapper": packed(struct.pack(">qi", 0, 5) + good()[12:]),
        "a wrapper below its last message": packed(five, offset=1),
        "a wrapper of offset 0": packed(five),
        "a wrapper of offset 9": packed(five, offset=9),
        "a wrapper with a wrong CRC": packed(five)[:-1] + b"x",
        "a wrapper without a value": message(1, 0, None, None, TIME, GZIP),
        "bytes after the value": _with_body(struct.pack(">bbq", 1, 0, TIME) + sized(b"k") + sized(b"v") + b"zzz"),
        "lz4 with the checksum of v0": wrapper(0, LZ4, [LegacyRecord(0, b"a", b"b")]),
        "lz4 with a right checksum": wrapper(0, LZ4, [LegacyRecord(0, b"a", b"b")], wrong_lz4_checksum=False),
        "larger than max.message.bytes": message(1, 0, b"k", b"v" * 1_100_000, TIME),
        "messages of 1.8 MB together": message(1, 0, b"k", b"v" * 600_000, TIME) * 3,
        "timestamp -1": message(1, 0, b"k", b"v", -1),
        "no key": good(None),
        "no key in a wrapper": wrapper(1, GZIP, [LegacyRecord(0, b"a", b"", TIME), LegacyRecord(1, None, b"", TIME)]),
        # What Kafka calls UNKNOWN_SERVER_ERROR, we call by name: see OURS.
        "a negative size": struct.pack(">qi", 0, -1) + good()[12:],
        "timestamp -5": message(1, 0, b"k", b"v", -5),
        "codec 5": message(1, 0, b"k", b"v", TIME, 5),
        "a broken gzip stream": message(1, 0, None, b"xxxx", TIME, GZIP),
        "a key size that lies": _with_body(struct.pack(">bbqi", 1, 0, TIME, 100) + b"k" + sized(b"v")),
    }


OURS = {
    "a negative size": (2, 4),
    "timestamp -5": (-1, 32),
    "codec 5": (-1, 76),
    "a broken gzip stream": (-1, 87),
    "a key size that lies": (-1, 87),
}
"""Where our answer is another than Kafka's: (Kafka's error, ours)."""


def answers(client: OldClient, sets: list[list[Any]]) -> dict[str, Any]:
    """Everything that the scenario asks, `sets` sent first. The topics are there, and empty."""
    found: dict[str, Any] = {}
    found["produced"] = [list(client.produce(version, topic, unpacked(data))[:2]) for topic, version, data in sets]
    for topic in ("sets", "append-time", "gzipped"):
        stored = [one for one in client.walk(4, topic, 1 << 20) if not one.is_control]
        found[f"stored {topic}"] = [
            [b.base_offset, b.last_offset, b.attributes, b.base_timestamp, b.max_timestamp, len(b.records)]
            for b in stored
        ]
        for version in (0, 1, 2, 3, 4):
            for most in (1 << 20, 3_000, 400) if version in (0, 3) else (20_000,):
                found[f"fetched {version} {topic} {most}"] = summary(client.walk(version, topic, most), digest)
    found["damage"] = {
        f"{topic}: {name}": list(client.produce(2, topic, data)[:2])
        for name, data in damaged_sets().items()
        for topic in (("damage", "compacted") if "key" in name else ("damage",))
    }
    found["stored damage"] = summary(client.walk(4, "damage", 1 << 20), digest)
    found["acks"] = [client.produce(2, "damage", message(1, 0, b"k", b"v", TIME), acks=acks)[0] for acks in (1, 2, -2)]
    found["partitions"] = [
        client.produce(2, "damage", message(1, 0, b"k", b"v", TIME), partition=9)[0],
        client.fetch(0, "damage", 10_000).error,
        client.fetch(3, "damage", -5).error,
    ]
    found["list"] = _listed(client)
    found["commits"] = _committed(client)
    return found


def _listed(client: OldClient) -> list[Any]:
    asked = [(time, most) for time in (-1, -2, 10**15, 1_000, -3) for most in (1, 2, 100, 0, -1)]
    empty = [client.list_offsets("offsets", time, most) for time, most in asked]
    for _ in range(5):
        client.produce(2, "offsets", message(1, 0, b"k", b"v", TIME))
    return [
        *empty,
        *(client.list_offsets("offsets", time, most) for time, most in asked),
        client.list_offsets("offsets", -1, 1, partition=7),
    ]


def _committed(client: OldClient) -> list[Any]:
    """Of what is stored in ZooKeeper there, which keeps no metadata and no group, only what does not depend on that."""
    return [
        client.commit(0, "zk", "offsets", 3, ""),
        client.committed(0, "zk", "offsets"),
        client.committed(0, "nobody", "offsets"),
        client.committed(0, "zk", "offsets", partition=7),
        client.committed(0, "zk", "not-there"),
        client.commit(0, "zk", "not-there", 3, ""),
        client.commit(0, "zk", "offsets", 3, "", partition=7),
        client.commit(0, "zk", "offsets", 3, "x" * 5_000),
        client.commit(0, "zk", "offsets", 4, None),
        client.committed(0, "zk", "offsets"),
        client.commit(1, "g", "offsets", 3, "note"),
        client.committed(1, "g", "offsets"),
        client.commit(1, "g", "offsets", 5, "note", generation=3, member="x"),
        client.commit(1, "g", "offsets", 6, "named", timestamp=TIME),
        client.committed(1, "g", "offsets"),
        client.commit(1, "g", "offsets", 3, "x" * 5_000),
        client.committed(1, "nobody", "offsets"),
    ]


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unpacked(text: str) -> bytes:
    return base64.b64decode(text)
