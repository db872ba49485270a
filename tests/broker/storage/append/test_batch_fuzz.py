"""Batches with a valid CRC and malformed records in all their readers: produce, recovery, the offline reader,
kafkalog-check and the cleaner. A plain decoder with Java's rules decides which batches are valid and what they hold.

All readers agree on a batch that produce accepts. A batch that produce refuses is malformed by Java's rules, or breaks
one of the rules for producers.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.append import kernel_loading, record_walk
from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.check.finding import Severity
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.write.encoded_batch import EncodedBatch
from tests.broker.storage.helpers.cleaned_logs import ACCEPT_ALL, clean, compacted_log
from tests.broker.storage.helpers.stored_logs import NOW, log_bytes, new_log, reopened
from tests.log.helpers.damaged_log import read_all, write_segments
from tests.log.helpers.lying_batches import Lying, lying_batch
from tests.log.helpers.plain_decoder import Batch, Malformed, Record, decode_batches

FEW, MANY = 600, 20_000
FILES = 10
"""Of so many batches one goes through the steps that write files for it alone."""
SEEDS = [(1, FEW), *(pytest.param(seed, MANY, marks=pytest.mark.slow) for seed in (2, 3, 4))]


@pytest.fixture(params=["plain", "compiled"], autouse=True)
def walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with the compiled and with the Python record walk, on batches of any size."""
    kernel_loading.load_kernel()
    monkeypatch.setattr(record_walk, "PLAIN_RECORDS", 10**9 if request.param == "plain" else -1)


def plainly(data: bytes) -> list[Batch] | None:
    """Decode a batch by Java's rules; return None if it is malformed."""
    try:
        return list(decode_batches(data))
    except Malformed:
        return None


def produced(data: bytes) -> EncodedBatch | None:
    """Return the batch that produce stores; None if produce refuses it. Other exceptions pass through."""
    try:
        return validate_batch(data, ACCEPT_ALL, NOW)
    except BrokerError:
        return None


def contents(records: tuple[Record, ...]) -> list[tuple[object, ...]]:
    return [(record.timestamp, record.key, record.value, record.headers) for record in records]


def plausible(batch: Batch) -> bool:
    """Whether its timestamps are some that producers may send and Spark can show."""
    return all(abs(record.timestamp) < 2**50 for record in batch.records)


def in_order(batch: Batch) -> bool:
    """Whether the reader can give its rows: offsets that rise up to the last one, timestamps that Spark can show."""
    offsets = [record.offset for record in batch.records]
    rising = offsets == sorted(set(offsets)) and all(batch.base_offset <= at <= batch.last_offset for at in offsets)
    return rising and batch.last_offset >= batch.base_offset and plausible(batch)


@pytest.mark.parametrize(("seed", "count"), SEEDS)
def test_fuzzed_batch_accepted_by_produce_is_read_equally_by_all_readers(seed: int, count: int, tmp_path: Path) -> None:
    draw, log, expected = random.Random(seed), new_log(tmp_path), list[Record]()
    found = {True: 0, False: 0}
    for _ in range(count):
        lying = lying_batch(draw)
        good, accepted = plainly(lying.data), produced(lying.data)
        if lying.packed_damage:
            continue
        found[accepted is not None] += 1
        if good is None:
            assert accepted is None, lying.data.hex()
        elif lying.honest_header and lying.sequential and plausible(good[0]):
            assert accepted is not None, lying.data.hex()
        if good is None or accepted is None or not plausible(good[0]):
            continue
        (stored,) = decode_batches(bytes(accepted.data))
        assert contents(stored.records) == contents(good[0].records), lying.data.hex()
        base = log.append(accepted, NOW).base_offset
        expected += [
            Record(base + place, *tail) for place, tail in enumerate((r.timestamp, r.timestamp_type, r.key, r.value,
            r.headers) for r in good[0].records)
        ]  # fmt: skip
    assert min(found.values()) > count / 10
    assert [record for batch in decode_batches(log_bytes(log)) for record in batch.records] == expected
    log.flush()
    rows = read_all(log.directory)
    assert [(row["offset"], row["timestamp"], row["key"], row["value"], tuple(row["headers"])) for row in rows] == [
        (record.offset, record.timestamp, record.key, record.value, record.headers) for record in expected
    ]
    assert errors_of(log.directory) == []
    end = log.log_end_offset
    log.close()
    recovered = reopened(tmp_path, clean=False)
    assert recovered.log_end_offset == end
    recovered.close()


def errors_of(directory: Path) -> list[object]:
    findings = check_log_dirs([directory]).findings
    return [finding for finding in findings.kept if finding.severity is Severity.ERROR]


@pytest.mark.parametrize(("seed", "count"), SEEDS)
def test_cleaner_keeps_the_latest_record_of_each_key_in_fuzzed_batches(seed: int, count: int, tmp_path: Path) -> None:
    draw, log, latest = random.Random(seed), compacted_log(tmp_path, segment_bytes=20_000), dict[bytes, Record]()
    for _ in range(count):
        lying = lying_batch(draw)
        try:
            accepted = validate_batch(lying.data, log.config, NOW)
        except BrokerError:
            continue
        if lying.packed_damage:
            continue
        (sent,) = decode_batches(lying.data)
        if not plausible(sent):
            continue
        base = log.append(accepted, NOW).base_offset
        for place, record in enumerate(sent.records):
            assert record.key is not None
            latest[record.key] = Record(base + place, record.timestamp, 0, record.key, record.value, record.headers)
    assert len(latest) > 3
    end, _, _ = clean(log, NOW)
    assert end == log.log_end_offset
    kept = [record for batch in decode_batches(log_bytes(log)) for record in batch.records]
    assert kept == sorted(latest.values(), key=lambda record: record.offset)
    assert errors_of(log.directory) == []
    log.close()


@pytest.mark.parametrize(("seed", "count"), SEEDS)
def test_fuzzed_batch_in_a_log_file_is_read_as_by_java_or_reported_with_its_position(
    seed: int, count: int, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    for place in range(count // FILES):
        lying: Lying = lying_batch(draw)
        directory = write_segments(tmp_path / str(place), {0: lying.data})
        good = plainly(lying.data)
        if lying.packed_damage:
            good = None
        try:
            rows = [(row["offset"], row["key"], row["value"], tuple(row["headers"])) for row in read_all(directory, 1)]
        except KafkalogError:
            assert good is None or not in_order(good[0]), lying.data.hex()
        else:
            assert good is not None or lying.packed_damage, lying.data.hex()
            assert good is None or rows == [(r.offset, r.key, r.value, r.headers) for r in good[0].records], (
                lying.data.hex()
            )
        check_log_dirs([directory])
        reopened(tmp_path / str(place), clean=False).close()
