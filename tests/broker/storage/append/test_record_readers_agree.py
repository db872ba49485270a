"""All readers of records accept or refuse the same batches.

The tests change batches and then correct their CRC. The expected result comes from the plain decoder, which has the
rules of Java's DefaultRecord.readFrom and shares no code with the package.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from kafkalog_broker.coordinator.record_batch import CoordinatorBatch, decode_batches
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.storage.append import kernel_loading, record_walk
from kafkalog_broker.storage.append.record_layouts import RecordColumn
from kafkalog_broker.storage.append.record_walk import find_timestamp, record_columns, renumbered, walk_records
from kafkalog_broker.storage.append.topic_rules import InvalidRecords, TimestampBounds, check_records
from kafkalog_broker.storage.compaction.offset_map import OffsetMap
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.layout import RECORDS_AT
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from tests.broker.storage.helpers.map_probe import latest_of
from tests.broker.storage.helpers.stored_logs import log_config
from tests.log.helpers import plain_decoder
from tests.log.helpers.batch_builder import V2Record, batch, encoded
from tests.log.helpers.damaged_log import read_all, write_segments

BASE = 1_700_000_000_000
COLUMNS = ("offset", "key", "value", "headers", "timestampType")
OVERLONG = [b"\x82\x80\x80\x80\x00", b"\x82\x80\x80\x80\x80\x00", b"\x80" * 9 + b"\x01", b"\x80" * 10 + b"\x00"]
NUMBERS = [b"\x03", b"\x05", b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x1f", b"\x01", b"\x00", b"\x7f", b"\x80"]


def good_batch(chance: random.Random) -> tuple[list[V2Record], bytes]:
    def some() -> bytes | None:
        return chance.choice([None, b"", b"k", b"key" * 3, bytes(70)])

    rows = [
        V2Record(
            i,
            BASE + chance.randrange(-3, 3),
            some(),
            some(),
            tuple((b"h", some()) for _ in range(chance.choice([0, 0, 1, 3]))),
        )
        for i in range(chance.randrange(1, 8))
    ]
    return rows, encoded(rows, 0, rows[0].timestamp)


def changed(payload: bytes, chance: random.Random) -> bytes:
    data = bytearray(payload)
    for _ in range(chance.choice([0, 1, 1, 2])):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at : at + 1] = chance.choice(NUMBERS)
        elif kind == 2:
            data[at : at + 1] = chance.choice(OVERLONG)
        elif kind == 3:
            del data[at:]
        else:
            data += bytes(chance.randrange(3))
    # the first record's length is put right now and then, so that what is inside is reached
    if len(payload) > 1 and chance.random() < 0.5 and payload[0] < 0x80 and data:
        length = payload[0] // 2 + len(data) - len(payload)
        if 0 <= length < 64:
            data[0] = 2 * length
    return bytes(data)


def taken(read: Callable[..., object], *arguments: object, **named: object) -> bool:
    try:
        read(*arguments, **named)
    except CorruptBatch:
        return False
    return True


def told_by_the_oracle(data: bytes) -> plain_decoder.Batch | None:
    try:
        return plain_decoder.decode_batch_v2(data)
    except plain_decoder.Malformed:
        return None


def decoded(data: bytes) -> list[CoordinatorBatch]:
    return list(decode_batches([data]))


def in_order(found: plain_decoder.Batch, count: int) -> bool:
    offsets = [record.offset for record in found.records]
    return all(0 <= offset < count for offset in offsets) and offsets == sorted(set(offsets))


@pytest.fixture(params=["plain", "compiled"])
def walker(request, monkeypatch):
    kernel_loading.load_kernel()
    monkeypatch.setattr(record_walk, "PLAIN_RECORDS", 10**9 if request.param == "plain" else -1)


def invalid_records(columns: npt.NDArray[np.int64], bounds: TimestampBounds) -> InvalidRecords | None:
    """The records that a compacted topic with these bounds of timestamps does not take."""
    config = log_config(cleanup_policy=("compact",))
    try:
        check_records(columns[:, RecordColumn.TIMESTAMP], columns[:, RecordColumn.KEY_SIZE], config, bounds)
    except InvalidRecords as error:
        return error
    return None


def mutants(how_many: int, seed: int):
    chance = random.Random(seed)
    for _ in range(how_many):
        rows, payload = good_batch(chance)
        count = max(len(rows) + chance.choice([0, 0, 0, 0, 1, -1]), 1)
        yield rows[0].timestamp, count, changed(payload, chance)


def sealed_batch(base_timestamp: int, count: int, payload: bytes) -> bytes:
    return batch(
        0, [V2Record(0, base_timestamp)], payload=payload, count=count, last_offset=count - 1, max_timestamp=BASE
    )


def test_record_walks_of_changed_batches_agree_with_java_rules(walker):
    outcomes = [0, 0]
    for base, count, payload in mutants(3000, 11):
        found = told_by_the_oracle(sealed_batch(base, count, payload))
        view = memoryview(payload)
        assert taken(walk_records, view, count, base) == (found is not None), payload.hex()
        outcomes[found is not None] += 1
        if found is None:
            continue
        facts = walk_records(view, count, base)
        times = [record.timestamp for record in found.records]
        assert facts.in_sequence == ([record.offset for record in found.records] == list(range(count)))
        assert facts.null_keys == sum(record.key is None for record in found.records)
        assert facts.max_timestamp == max(times)
        first = find_timestamp(view, count, base, BASE, 0)
        assert first == next(
            ((r.timestamp, r.offset) for r in found.records if r.timestamp >= BASE and r.offset >= 0), None
        )
        columns = record_columns(view, count, base)
        assert columns[:, RecordColumn.OFFSET_DELTA].tolist() == [record.offset for record in found.records]
        invalid = invalid_records(columns, TimestampBounds(BASE, BASE + 1))
        no_key = [record.key is None for record in found.records]
        late = [not k and t != -1 and not BASE <= t <= BASE + 1 for k, t in zip(no_key, times, strict=True)]
        indexes = [i for i in range(count) if no_key[i] or late[i]]
        if indexes:
            assert invalid is not None
            assert (invalid.total, [record.batch_index for record in invalid.records]) == (len(indexes), indexes)
            assert invalid.code is (ErrorCode.invalid_timestamp if any(late) else ErrorCode.invalid_record)
        else:
            assert invalid is None
        again = told_by_the_oracle(sealed_batch(base, count, bytes(renumbered(view, count, base))))
        assert again is not None
        assert [record.offset for record in again.records] == list(range(count))
        assert [(r.timestamp, r.key, r.value, r.headers) for r in again.records] == [
            (r.timestamp, r.key, r.value, r.headers) for r in found.records
        ]
    assert min(outcomes) > 500


def test_coordinator_reads_changed_batches_as_java_rules_do():
    for base, count, payload in mutants(2000, 12):
        data = sealed_batch(base, count, payload)
        found = told_by_the_oracle(data)
        assert taken(decoded, data) == (found is not None), payload.hex()
        if found is not None:
            (read,) = decoded(data)
            assert read.records == [(record.key, record.value) for record in found.records if record.key is not None]


def test_reader_cleaner_and_check_accept_changed_batches_as_java_rules_do(tmp_path: Path):
    for place, (base, count, payload) in enumerate(mutants(300, 13)):
        data = sealed_batch(base, count, payload)
        found = told_by_the_oracle(data)
        good = found is not None and in_order(found, count)
        records = found.records if found is not None and good else ()
        directory = write_segments(tmp_path / str(place), {0: data})
        assert taken(read_all, directory, columns=COLUMNS) == good, payload.hex()
        assert (check_log_dirs([directory], decode_records=True).findings.errors == 0) == good
        keys = OffsetMap(1 << 12, 0.9, 100)
        source = np.frombuffer(payload or b"\0", np.uint8)[: len(payload)]
        source.flags.writeable = False
        units = np.array([[0, count - 1, count]], np.int64)
        assert keys.add_records(source, np.array([0]), np.array([len(payload)]), units, 0)
        expected = {record.key: record.offset for record in records if record.key is not None}
        assert len(keys) == len(expected)
        assert all(latest_of(keys, key) == offset for key, offset in expected.items())
        if good:
            assert [(row["offset"], row["key"], row["value"]) for row in read_all(directory, columns=COLUMNS)] == [
                (record.offset, record.key, record.value) for record in records
            ]
        assert data[RECORDS_AT:] == payload
