"""A real Kafka loads segments that kafkalog has written; consumers return them, DumpLogSegments reports no error.

Every kind of log is written twice: for a broker that starts after a clean shutdown and believes the files, and for one
that has lost its clean-shutdown marker and its recovery points, checks every batch and builds the indexes again.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkalog_spark.format.layout import Codec, ControlType, TimestampType
from kafkalog_spark.log.decode.record_schema import HEADERS_TYPE
from kafkalog_spark.log.write.encoded_batch import control_batch
from kafkalog_spark.log.write.record_encoder import BatchParams
from kafkalog_spark.log.write.segment_roll import SEGMENT_BYTES
from tests.golden_data import Row, parse_dump
from tests.interop.real_kafka import RealKafka, available, classpath
from tests.log.helpers.encoded_batches import encode_batches, of_producer
from tests.log.helpers.log_writer import LogWriter

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

START = 1_700_000_000_000
SMALL_SEGMENTS = 40_000  # bytes
KINDS = [codec.name.lower() for codec in Codec] + ["gaps", "logappend", "large", "one", "continued"]
STARTS = ("clean", "recovered")
TRANSACTIONS = "recovered-transactions"  # only there: nobody but recovery makes the transaction index
FILE_SUFFIXES = (".log", ".index", ".timeindex")


def random_rows(topic: str, count: int, first_offset: int = 0, gaps: bool = False) -> list[Row]:
    """Keys, values and headers null, empty, short and long; timestamps out of order."""
    rng = random.Random(topic)
    rows, offset = [], first_offset
    for i in range(count):
        text = b" ".join(rng.choice([b"alpha", b"beta", b"gamma", b"delta"]) for _ in range(rng.randrange(20)))
        rows.append(
            {
                "key": rng.choice([None, b"", b"key-%d" % rng.randrange(50)]),
                "value": rng.choice([None, b"", text, text, text, rng.randbytes(rng.randrange(300))]),
                "topic": topic,
                "partition": 0,
                "offset": offset,
                "timestamp": START + 1000 * i + rng.randrange(-5000, 5000),
                "timestampType": 0,
                "headers": rng.choice(
                    [[], [], [("a", b"1"), ("a", None), ("", b"")], [("naïve-ключ", rng.randbytes(80))]]
                ),
            }
        )
        offset += rng.choice([1, 1, 1, 5, 1000]) if gaps else 1
    return rows


def columns(rows: list[Row]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": pa.array([row["key"] for row in rows], pa.binary()),
            "value": pa.array([row["value"] for row in rows], pa.binary()),
            "offset": pa.array([row["offset"] for row in rows], pa.int64()),
            "timestamp": pa.array([row["timestamp"] for row in rows], pa.timestamp("ms", "UTC")),
            "headers": pa.array(
                [[{"key": key, "value": value} for key, value in row["headers"]] or None for row in rows], HEADERS_TYPE
            ),
        }
    )


def write(
    writer: LogWriter, rows: list[Row], params: BatchParams, producer: int | None = None, sequence: int = 0
) -> None:
    params = dataclasses.replace(params, leader_epoch=max(writer.leader_epoch, 0))
    for batch in encode_batches(columns(rows), writer.next_offset, params):
        if producer is not None:
            count = batch.header.record_count
            batch, sequence = of_producer(batch, producer, 0, sequence), sequence + count
        writer.append(batch)


def write_log(directory: Path, topic: str, kind: str, there: list[Row]) -> list[Row]:
    """Put our segments in place of the empty one (behind Kafka's, for `continued`); returns the rows to be consumed."""
    if kind != "continued":
        for path in directory.iterdir():
            if path.suffix in (*FILE_SUFFIXES, ".snapshot"):
                path.unlink()
    params, segment_bytes, rows = BatchParams(batch_size=3000), SMALL_SEGMENTS, random_rows(topic, 1500)
    if kind == "gaps":
        rows = random_rows(topic, 1500, first_offset=123_456, gaps=True)
    elif kind == "logappend":
        params = dataclasses.replace(
            params, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=START + 7, codec=Codec.LZ4
        )
        rows = [row | {"timestamp": START + 7, "timestampType": 1} for row in rows]
    elif kind == "large":
        segment_bytes = SEGMENT_BYTES
        params = BatchParams(codec=Codec.ZSTD, batch_size=900_000)
        rows = [row | {"value": random.Random(row["offset"]).randbytes(20_000) * 15} for row in rows[:20]]
    elif kind == "one":
        rows = rows[:1]
    elif kind == "continued":
        rows = random_rows(topic, 1500, first_offset=len(there))
        params = dataclasses.replace(params, codec=Codec.SNAPPY)
    else:
        params = dataclasses.replace(params, codec=Codec[kind.upper()])
    with LogWriter(directory, base_offset=rows[0]["offset"], segment_bytes=segment_bytes) as writer:
        write(writer, rows, params)
    several = kind not in ("one", "large")
    assert (len(list(directory.glob("*.log"))) > 1) is several, "the test means to write several segments"
    return there + rows


def write_transactions(directory: Path, topic: str) -> tuple[list[Row], list[Row]]:
    """Two producers, transactions of both interleaved, one commits and one aborts each time.

    Returns (all rows, the rows of committed transactions).
    """
    for path in directory.iterdir():
        if path.suffix in (*FILE_SUFFIXES, ".snapshot"):
            path.unlink()
    rows = random_rows(topic, 400)
    everything: list[Row] = []
    committed: list[Row] = []
    sequences = [0, 0]
    with LogWriter(directory, segment_bytes=SMALL_SEGMENTS) as writer:
        for turn in range(10):
            for producer in (0, 1):
                part = [
                    row | {"offset": writer.next_offset + i}
                    for i, row in enumerate(rows[40 * turn + 20 * producer :][:20])
                ]
                write(writer, part, BatchParams(codec=Codec.LZ4), producer, sequences[producer])
                sequences[producer] += len(part)
                everything += part
                committed += part if producer == turn % 2 else []
            for producer in (0, 1):
                kind = ControlType.COMMIT if producer == turn % 2 else ControlType.ABORT
                marker = control_batch(
                    kind, writer.next_offset, START, producer_id=producer, producer_epoch=0, coordinator_epoch=0,
                    leader_epoch=writer.leader_epoch,
                )  # fmt: skip
                writer.append(marker)
    return everything, committed


@dataclasses.dataclass
class Proof:
    """Observations of a Kafka that has loaded our logs."""

    kafka: RealKafka
    wanted: dict[str, list[Row]]
    consumed: dict[str, list[Row]]
    committed: tuple[list[Row], list[Row]]  # wanted, consumed
    written: dict[str, dict[str, bytes]]  # topic -> name -> bytes, before the broker came
    loaded: dict[str, dict[str, bytes]]  # the same files after it stopped again


def segment_files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.suffix in FILE_SUFFIXES}


def produce_first_half(kafka: RealKafka, topic: str) -> list[Row]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "batch.num.messages": 20})
    for i in range(300):
        producer.produce(topic, b"kafka wrote %d" % i, timestamp=START + i, headers=[("by", b"kafka")])
    assert producer.flush(120) == 0
    return kafka.consume(topic)


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proof]:
    kafka = RealKafka(tmp_path_factory.mktemp("kafka"), short_lived=True)
    result = Proof(kafka, {}, {}, ([], []), {}, {})
    try:
        kafka.start()
        for start in STARTS:
            for kind in KINDS:
                kafka.create_topic(f"{start}-{kind}")
        kafka.create_topic(TRANSACTIONS)
        there = {f"{start}-continued": produce_first_half(kafka, f"{start}-continued") for start in STARTS}
        kafka.stop()
        for start in STARTS:
            for kind in KINDS:
                topic = f"{start}-{kind}"
                directory = kafka.partition_dir(topic)
                result.wanted[topic] = write_log(directory, topic, kind, there.get(topic, []))
                result.written[topic] = segment_files(directory)
            if start == "recovered":
                rows, committed = write_transactions(kafka.partition_dir(TRANSACTIONS), TRANSACTIONS)
                result.wanted[TRANSACTIONS] = rows
                result.written[TRANSACTIONS] = segment_files(kafka.partition_dir(TRANSACTIONS))
                (kafka.data_dir / ".kafka_cleanshutdown").unlink()
                (kafka.data_dir / "recovery-point-offset-checkpoint").unlink()
            kafka.start()
            for topic in [f"{start}-{kind}" for kind in KINDS] + ([TRANSACTIONS] if start == "recovered" else []):
                result.consumed[topic] = kafka.consume(topic)
            if start == "recovered":
                result.committed = (committed, kafka.consume(TRANSACTIONS, isolation_level="read_committed"))
            kafka.stop()
        for topic in result.wanted:
            result.loaded[topic] = segment_files(kafka.partition_dir(topic))
        yield result
    finally:
        kafka.kill()


TOPICS = [f"{start}-{kind}" for start in STARTS for kind in KINDS] + [TRANSACTIONS]


@pytest.mark.parametrize("topic", TOPICS)
def test_consumer_returns_every_written_record(proof: Proof, topic: str) -> None:
    assert len(proof.consumed[topic]) == len(proof.wanted[topic])
    assert proof.consumed[topic] == proof.wanted[topic]


def test_read_committed_consumer_returns_records_committed_by_our_markers(proof: Proof) -> None:
    wanted, consumed = proof.committed
    assert len(wanted) == 200
    assert consumed == wanted


@pytest.mark.parametrize("topic", TOPICS)
def test_kafka_does_not_change_our_segments_and_indexes(proof: Proof, topic: str) -> None:
    """After recovery these are the indexes that Kafka itself has built from our .log files."""
    assert {name: len(data) for name, data in proof.loaded[topic].items()} == {
        name: len(data) for name, data in proof.written[topic].items()
    }
    assert proof.loaded[topic] == proof.written[topic]


def dump(files: list[Path], *options: str) -> str:
    """What DumpLogSegments prints. It tells of mismatches on stderr and still ends with 0: `RealKafka.tool`, which
    returns stdout, would hide them."""
    command = ["java", "-Xmx512m", "-cp", classpath(), "org.apache.kafka.tools.DumpLogSegments", *options]
    command += ["--files", ",".join(map(str, files))]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=150)
    assert ran.returncode == 0, ran.stdout[-2000:]
    return ran.stdout


def all_files(proof: Proof, *suffixes: str) -> list[Path]:
    return [
        path
        for topic in proof.wanted
        for path in sorted(proof.kafka.partition_dir(topic).iterdir())
        if path.suffix in suffixes
    ]


def findings(text: str) -> list[str]:
    """Lines of DumpLogSegments on index files that are neither a file's name nor a passed check nor an empty file."""
    fine = (" passed sanity check.", ".index is empty.")
    return [line for line in text.splitlines() if not line.startswith("Dumping ") and not line.endswith(fine)]


def without_gaps(text: str) -> tuple[list[str], dict[str, list[tuple[int, int]]]]:
    """DumpLogSegments' lines without those on offsets that do not follow one another, and these as pairs by file."""
    rest: list[str] = []
    gaps: dict[str, list[tuple[int, int]]] = {}
    pairs: list[tuple[int, int]] = []
    for line in text.splitlines():
        if line.startswith("Non-consecutive offsets in "):
            path = Path(line.removeprefix("Non-consecutive offsets in "))
            pairs = gaps.setdefault(f"{path.parent.name}/{path.name}", [])
        elif found := re.fullmatch(r"  (-?\d+) is followed by (\d+)", line):
            pairs.append((int(found[1]), int(found[2])))
        else:
            rest.append(line)
    return rest, gaps


def test_dump_log_segments_finds_every_batch_and_record_valid(proof: Proof) -> None:
    logs = all_files(proof, ".log")
    lines, gaps = without_gaps(dump(logs, "--deep-iteration", "--skip-record-metadata"))
    # parse_dump raises for lines that are neither batch nor record: the tool complains in such lines
    dumped = parse_dump(lines)
    assert len(dumped) == len(logs)
    for topic in proof.wanted:
        batches = {name: found for name, found in dumped.items() if name.startswith(f"{topic}-0/")}
        assert all(batch.is_valid for found in batches.values() for batch in found)
        records = sum(batch.count or 0 for found in batches.values() for batch in found if not batch.control)
        assert records == len(proof.wanted[topic])
        for name, found in batches.items():
            # 4.3.0 counts from -1, so the first offset of any later segment is a gap to it: of Kafka's own logs too
            base, end = found[0].base_offset, found[-1].last_offset
            offsets = [-1] + [r["offset"] for r in proof.wanted[topic] if base <= r["offset"] <= end]
            if topic == TRANSACTIONS:
                offsets = [-1, *range(base, end + 1)]  # markers are records to the tool
            expected = [(one, two) for one, two in itertools.pairwise(offsets) if two != one + 1]
            assert gaps.pop(name, []) == expected, name
    assert gaps == {}


def test_dump_log_segments_finds_no_fault_in_any_index(proof: Proof) -> None:
    indexes = all_files(proof, ".index", ".timeindex")
    sane = dump(indexes, "--index-sanity-check")
    empty = [path for path in indexes if path.suffix == ".index" and path.stat().st_size == 0]
    assert sane.count("passed sanity check") == len(indexes) - len(empty)
    assert sane.count("is empty") == len(empty) < len(indexes) / 10
    assert findings(sane) == []
    verified = dump(indexes, "--verify-index-only")
    assert verified.count("Dumping ") == len(indexes)
    assert findings(verified) == []


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_dump_log_segments_reports_a_flipped_bit(proof: Proof, tmp_path: Path) -> None:
    """Guards the two tests above: a wrong bit in an offset, a timestamp or a record is reported."""
    source = proof.kafka.partition_dir("clean-none")
    log = sorted(source.glob("*.log"))[0]
    damaged: dict[str, Any] = {}
    for suffix, at in ((".index", 3), (".timeindex", 6), (".log", 3000)):
        directory = tmp_path / suffix[1:] / "clean-none-0"
        directory.mkdir(parents=True)
        for other in FILE_SUFFIXES:
            shutil.copyfile(log.with_suffix(other), directory / log.with_suffix(other).name)
        damaged[suffix] = directory / log.with_suffix(suffix).name
        flip(damaged[suffix], at)
    assert findings(dump([damaged[".index"]], "--verify-index-only"))[0].startswith("Mismatches in :")
    assert "timestamp" in findings(dump([damaged[".timeindex"]], "--verify-index-only"))[0]
    with pytest.raises(ValueError, match="invalid bytes at the end"):
        parse_dump(dump([damaged[".log"]]).splitlines())
