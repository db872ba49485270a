"""Compaction: its rate on one core for each codec and batch size, and its effect on the latency of producers.

The latency is that of requests with one record, while the cleaner runs and while it has nothing to clean.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.decode import one_core
from benchmarks.report import Report, in_turn, rate
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.storage.compaction.cleaner import Cleaner
from kafkalog_broker.storage.compaction.cleaning_host import CleaningHost
from kafkalog_broker.storage.compaction.cleaning_request import CleaningRequest
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment
from kafkalog_broker.storage.partition.loaded_log import create_log_files
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.producer_state import Producer
from kafkalog_broker.testing import RunningBroker, running_broker
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.log.tiered.remote_segment import TopicIdPartition
from kafkalog_spark.log.write.encoded_batch import split_batches
from kafkalog_spark.log.write.record_encoder import BatchParams, RecordEncoder

NOW = 1_700_000_000_000
UNCOMPRESSED = 100_000_000
"""Uncompressed bytes of the records that are cleaned."""
KEYS = 200_000
IO_BUFFER = 256 << 10  # Kafka's default: half of log.cleaner.io.buffer.size
DEDUPE_BUFFER = 128 << 20
CASES = (
    (Codec.NONE, 100, 16 << 10),
    (Codec.NONE, 1000, 16 << 10),
    (Codec.NONE, 100, 200),  # one record a batch
    (Codec.LZ4, 100, 16 << 10),
    (Codec.ZSTD, 100, 16 << 10),
    (Codec.SNAPPY, 100, 16 << 10),
    (Codec.GZIP, 100, 16 << 10),
)


class Host(CleaningHost):
    """Host without limits that discards the cleaned segments, so that the same log can be cleaned again."""

    def __init__(self) -> None:
        pass

    def check_not_aborted(self) -> None:
        pass

    def throttle(self, size: int) -> None:
        pass

    def producers(self) -> list[Producer]:
        return []

    def replace(self, cleaned: Sequence[CleanedSegment], old: Sequence[LogSegment]) -> None:
        for segment in cleaned:
            segment.discard()


def filled(directory: Path, codec: Codec, value_size: int, batch_size: int) -> tuple[Log, int]:
    """Create a log of closed segments. Return it with the uncompressed size of its records in bytes."""
    config = LogConfig.of(
        BrokerConfig.from_properties({}), {"cleanup.policy": "compact", "segment.bytes": str(64 << 20)}
    )
    identity = TopicIdPartition("compacted", uuid.UUID(int=1), 0)
    path = directory / "compacted-0"
    path.mkdir(parents=True)
    loaded = create_log_files(path, identity.topic_id, log_start_offset=0, leader_epoch=0)
    log = Log(identity, config, loaded, NOW)
    chance = np.random.default_rng(1)
    size, rows = 0, 50_000
    while size < UNCOMPRESSED:
        keys = pa.array([b"key-%012d" % key for key in chance.integers(0, KEYS, rows).tolist()], pa.binary())
        values = pa.array([os.urandom(value_size // 2).hex().encode() for _ in range(rows)], pa.binary())
        table = pa.table({"key": keys, "value": values, "timestamp": pa.array([NOW] * rows, pa.int64())})
        params = BatchParams(batch_size=batch_size)  # the size of uncompressed batches, whatever the codec
        size += sum(len(run.data) for run in RecordEncoder(params).runs(table, log.log_end_offset, NOW))
        params = BatchParams(batch_size=batch_size, codec=codec)
        for run in RecordEncoder(params).runs(table, log.log_end_offset, NOW):
            for encoded in split_batches(run.data):
                log.append_batch(encoded.data, NOW)
    log.local.roll(NOW)
    log.flush()
    return log, size


def clean(log: Log) -> float:
    """Clean the log. Return the processor time in seconds."""
    request = CleaningRequest(
        directory=log.directory, segments=log.segments, config=log.config, first_dirty_offset=0,
        first_uncleanable_offset=log.segments[-1].base_offset, now_ms=NOW,
    )  # fmt: skip
    begin = time.process_time()
    Cleaner(request, Host(), DEDUPE_BUFFER, 0.9, IO_BUFFER).clean()
    return time.process_time() - begin


def speed(report: Report, rounds: int) -> None:
    """Report the rate of compaction by processor time, which does not include waiting for fsync."""
    for codec, value_size, batch_size in CASES:
        with tempfile.TemporaryDirectory() as directory, one_core():
            log, size = filled(Path(directory), codec, value_size, batch_size)
            seconds = in_turn({"clean": lambda log=log: clean(log)}, rounds=rounds, warmups=1)["clean"]  # type: ignore[misc]
            log.discard()
        report.add(
            "compaction",
            f"{codec.name.lower()}, values of {value_size} B, batches of {batch_size} B before compression",
            uncompressed_mb_per_core_second=rate(size / 1e6, seconds),
        )


def acknowledgements(broker: RunningBroker, seconds: float) -> list[float]:
    """Send requests with one record one after the other. Return the seconds until each acknowledgement."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "acks": "all"})
    durations: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        producer.produce("measured", b"v" * 100, b"key")
        producer.flush(30)
        durations.append(time.perf_counter() - begin)
    return durations[100:]


@contextmanager
def writing(broker: RunningBroker) -> Iterator[None]:
    """Write to the topic `dirty` during the block, so that the cleaner always has work."""
    from confluent_kafka import Producer

    done = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20})
        number = 0
        while not done.is_set():
            for _ in range(500):
                number += 1
                producer.produce("dirty", b"v" * 100, b"key-%d" % (number % KEYS))
            producer.flush(30)
            time.sleep(0.02)  # a moderate load, so that only the cleaner affects the latency

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def latency(report: Report, seconds: float) -> None:
    """Report the latency while another topic is written to, with and without compaction of that topic."""
    p99: dict[str, list[float]] = {"compact": [], "delete": []}
    for _ in range(3):
        for policy, latencies in p99.items():
            topic = {"partitions": 1, "cleanup.policy": policy, "segment.bytes": 1 << 20,
                     "min.cleanable.dirty.ratio": 0.01, "retention.ms": -1}  # fmt: skip
            with (
                running_broker({"log.cleaner.backoff.ms": 1}, topics={"dirty": topic, "measured": 1}) as broker,
                writing(broker),
            ):
                time.sleep(1)
                latencies.append(float(np.quantile(acknowledgements(broker, seconds), 0.99)))
                checkpoint = broker.log_dir / "cleaner-offset-checkpoint"
                if policy == "compact" and not checkpoint.exists():
                    raise RuntimeError("the cleaner did not run, so its effect was not measured")
    report.add(
        "compaction",
        "produce, one record a request, p99 while another topic is written to",
        compacted_ms=round(1000 * statistics.median(p99["compact"]), 2),
        not_compacted_ms=round(1000 * statistics.median(p99["delete"]), 2),
        x_time_of_not_compacted=round(statistics.median(p99["compact"]) / statistics.median(p99["delete"]), 2),
    )


def main(report: Report, rounds: int = 3, seconds: float = 8.0) -> None:
    speed(report, rounds)
    latency(report, seconds)


if __name__ == "__main__":
    main(Report())
