"""A log directory of a small shop, three days of it: something in it for every part of a report."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Iterator
from pathlib import Path

from kafkalog_spark.log.write.encoded_batch import EncodedBatch
from tests.log.helpers.batch_builder import COMMIT, LZ4, NONE, TRANSACTIONAL, ZSTD, V2Record, batch, control
from tests.log.helpers.log_writer import LogWriter

START = 1_767_225_600_000
"""2026-01-01, in ms."""
HOUR = 3_600_000
HOURS = 72
OUTAGE = range(30, 36)
"""Hours without payments."""
CODECS = {"clicks": ZSTD, "orders": LZ4, "payments": ZSTD, "audit": NONE, "stock": LZ4}
PARTITIONS = {"clicks": 4, "orders": 3, "payments": 2, "audit": 1, "stock": 1}
BUSY = {"clicks": 90, "orders": 24, "payments": 18, "audit": 10, "stock": 12}
"""Records of a partition in an hour, at most."""
GROUPS = {"billing": ("orders", 0.97), "fraud": ("payments", 0.80), "dashboard": ("clicks", 0.55)}
"""Group -> topic, and how much of it has been read."""
PRODUCER, OPEN_PRODUCER = 4001, 4002
TRANSACTIONAL_IDS = {PRODUCER: "order-service", OPEN_PRODUCER: "refund-service"}
COMMITS_AT = (24, 33, HOURS)
"""Hours after which every group has committed: a third, two thirds, all of what it has read by the end."""
FORGOTTEN = b"user-42"
"""A key of stock that was deleted, and compacted away but for its tombstone."""
DAMAGED = "clicks-2"


def write_shop(root: Path) -> dict[str, int]:
    """Write it; returns the log end offsets by partition."""
    chance = random.Random(18)
    root.mkdir(parents=True, exist_ok=True)
    (root / "meta.properties").write_text("version=1\ncluster.id=shop-cluster\nnode.id=1\n")
    ends = {}
    for topic, count in PARTITIONS.items():
        for partition in range(count):
            name = f"{topic}-{partition}"
            with LogWriter(root / name, segment_bytes=24 << 10) as log:
                log.append_all(map(EncodedBatch.of, _batches(topic, chance)))
                if name == "orders-1":
                    at = log.next_offset
                    late = [V2Record(at, START + HOURS * HOUR - 5000, b"user-7", b"the transaction stays open")]
                    log.append(EncodedBatch.of(batch(at, late, producer_id=OPEN_PRODUCER, producer_epoch=0,
                                                     base_sequence=0, attributes=TRANSACTIONAL)))  # fmt: skip
                if topic == "stock":
                    tombstone = V2Record(log.next_offset, START + HOURS * HOUR - 9000, FORGOTTEN, None)
                    log.append(EncodedBatch.of(batch(log.next_offset, [tombstone])))
                ends[name] = log.next_offset
    log_file = max((root / DAMAGED).glob("*.log"), key=lambda file: file.stat().st_size)
    data = bytearray(log_file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log_file.write_bytes(data)
    _write_groups(root / "__consumer_offsets-0", ends)
    _write_transactional_ids(root / "__transaction_state-0")
    return ends


def _batches(topic: str, chance: random.Random) -> Iterator[bytes]:
    offset = sequence = 0
    for hour in range(HOURS):
        if topic == "payments" and hour in OUTAGE:
            continue
        day = 0.55 - 0.45 * math.cos((hour % 24 - 3) / 24 * 2 * math.pi)
        wanted = left = max(round(BUSY[topic] * day * chance.uniform(0.8, 1.2)), 1)
        while left > 0:
            count = min(left, chance.randint(2, 8))
            begin = START + hour * HOUR + (wanted - left) * HOUR // wanted
            left -= count
            times = sorted(begin + chance.randrange(count * HOUR // wanted) for _ in range(count))
            records = [V2Record(offset + at, time, *_content(topic, chance)) for at, time in enumerate(times)]
            if topic == "stock":
                records = [record for record in records if record.key != FORGOTTEN] or records[:1]
            if topic == "stock" and hour < HOURS // 2:  # compaction has been here
                records = records[::3]
            last, codec = offset + count - 1, CODECS[topic]
            if topic != "orders":
                yield batch(offset, records, codec=codec, last_offset=last)
            else:
                yield batch(offset, records, codec=codec, last_offset=last, attributes=TRANSACTIONAL,
                            producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)  # fmt: skip
            offset, sequence = offset + count, sequence + count
            if topic == "orders":
                yield control(offset, COMMIT, times[-1], PRODUCER, 0)
                offset += 1


def _content(topic: str, chance: random.Random) -> tuple[bytes, bytes]:
    user = min(int(chance.expovariate(1 / 60)), 999)
    value = {"topic": topic, "user": user, "amount": chance.randrange(1, 5000), "note": "." * chance.randrange(90)}
    return b"user-%d" % user, json.dumps(value).encode()


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def committed(group: str, end: int, step: int) -> int:
    """What a group had read of a partition with that end, after COMMITS_AT[step] hours."""
    return int(end * GROUPS[group][1]) * (step + 1) // len(COMMITS_AT)


def _write_groups(directory: Path, ends: dict[str, int]) -> None:
    with LogWriter(directory) as log:
        for step, hour in enumerate(COMMITS_AT):
            at = START + hour * HOUR
            records: list[V2Record] = []
            for group, (topic, _) in GROUPS.items():
                for partition in range(PARTITIONS[topic]):
                    key = struct.pack(">h", 1) + _text(group) + _text(topic) + struct.pack(">i", partition)
                    offset = committed(group, ends[f"{topic}-{partition}"], step)
                    value = struct.pack(">hqi", 3, offset, 0) + _text("") + struct.pack(">q", at)
                    records.append(V2Record(log.next_offset + len(records), at, key, value))
            log.append(EncodedBatch.of(batch(log.next_offset, records)))


def _write_transactional_ids(directory: Path) -> None:
    """TransactionLogValue 0: the one has completed its last transaction, the other waits for its partition."""
    at = START + HOURS * HOUR
    records: list[V2Record] = []
    for producer, name in TRANSACTIONAL_IDS.items():
        is_open = producer == OPEN_PRODUCER
        value = struct.pack(">hqhib", 0, producer, 0, 60_000, 1 if is_open else 4)
        value += struct.pack(">i", 1) + _text("orders") + struct.pack(">ii", 1, 1) if is_open else struct.pack(">i", 0)
        value += struct.pack(">qq", at - 5000, at - 5000)
        records.append(V2Record(len(records), at, struct.pack(">h", 0) + _text(name), value))
    with LogWriter(directory) as log:
        log.append(EncodedBatch.of(batch(0, records)))
