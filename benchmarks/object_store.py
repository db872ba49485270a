"""Reads of a bucket, compared with reads of the same files in a local log directory.

The bucket is served by an S3 server on the same machine (versitygw). It uses processor time, which a real bucket does
not; a real bucket has a higher latency, which read-ahead hides. `python -m benchmarks.object_store full` runs one part:
planning, selective, full or tiered.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from benchmarks.data import LARGE_VALUES, SMALL_VALUES, ensure
from benchmarks.report import Report, in_turn, rate, ratio
from benchmarks.spark_session import SparkSession
from benchmarks.topics import FIRST_TIMESTAMP, PARTITIONS, home
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry, read_leader_epochs
from kafkalog_spark.format.names import segment_name
from kafkalog_spark.format.producer_snapshot import format_producer_snapshot
from kafkalog_spark.log.decode.scan_buffers import ScanBuffers
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition
from kafkalog_spark.source.batch_task import resolve_split
from kafkalog_spark.source.coalescing import coalesce_batches
from kafkalog_spark.source.option_parsing import parse_read_options
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.planning import plan
from kafkalog_spark.source.range_scan import scan_range
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.source.split import Split
from kafkalog_spark.source.task_request import scan_request
from kafkalog_spark.store.object_client import all_counts
from kafkalog_spark.store.request_counts import RequestCounts
from tests.interop.connector import Connector
from tests.interop.real_kafka import RealKafka
from tests.log.tiered.aiven_writer import KEY_ID, KEYS, AivenMode, write_segment
from tests.source.helpers.made_logs import append
from tests.store.s3_server import S3Server

BUCKET = "machine"
CODECS = ("none", "lz4")
SKIPPED_FRACTION = 0.99
MANY_PARTITIONS, MANY_SEGMENTS = 100, 100
CHUNK_BYTES = 4 << 20  # suggested by the README of the plugin


@contextmanager
def bucket(directory: Path) -> Iterator[dict[str, str]]:
    """Serve `directory` as a bucket. Yield the options for reading it, including the path."""
    with TemporaryDirectory(prefix="kafkalog-bench-") as top:
        (Path(top) / BUCKET).symlink_to(directory)
        with S3Server(Path(top)) as server:
            yield {"path": f"s3a://{BUCKET}", **server.options}


def full(report: Report, rounds: int = 5) -> None:
    """Report full reads to `noop` of a bucket, of the local directory, and with format("kafka")."""
    connector = Connector.install()
    path = ensure([SMALL_VALUES[codec] for codec in CODECS])
    with (
        RealKafka(home()) as kafka,
        bucket(path) as options,
        SparkSession(connector.conf, connector.python) as theirs,
        SparkSession() as ours,
    ):
        for codec in CODECS:
            topic = SMALL_VALUES[codec]
            subscribe: dict[str, object] = {"subscribe": topic.name}
            remote = {**subscribe, **options}
            ours.run("kafkalog", remote, action="count", expect=topic.records)
            seconds = in_turn(
                {
                    "bucket": partial(ours.run, "kafkalog", remote),
                    "local": partial(ours.run, "kafkalog", subscribe, path=str(path)),
                    "kafka": partial(theirs.run, "kafka", {**subscribe, "kafka.bootstrap.servers": kafka.bootstrap}),
                },
                rounds=rounds,
            )
            report.add(
                "object_store",
                f"{codec}, {topic.records / 1e6:g} M x {topic.value_size} B from S3",
                M_rows_per_s=rate(topic.records / 1e6, seconds["bucket"]),
                local_M_rows_per_s=rate(topic.records / 1e6, seconds["local"]),
                x_local=round(ratio(seconds["local"], seconds["bucket"]), 2),
                bar=">= 0.6",
                x_kafka=round(ratio(seconds["kafka"], seconds["bucket"]), 2),
                bar_kafka=">= 2.5",
                worker_peak_MB=ours.worker_peak_mb(),
            )


def tiered(report: Report, rounds: int = 5) -> None:
    """Report full reads to `noop` of segments in the layout of Aiven's plugin, compressed or also encrypted, on S3.

    They are compared with the same records in a local log directory.
    """
    topic = SMALL_VALUES["none"]
    path = ensure([topic])
    local: dict[str, object] = {"subscribe": topic.name}
    with TemporaryDirectory(prefix="kafkalog-bench-") as top, SparkSession() as ours:
        for mode in (AivenMode.ZSTD, AivenMode.ZSTD_ENCRYPTED):
            tree = Path(top) / mode.name
            for partition in range(PARTITIONS):
                write_as_aiven(path / f"{topic.name}-{partition}", topic.name, partition, tree, mode)
            with bucket(tree) as options:
                key = {f"tiered.encryption.key.{KEY_ID}": str(KEYS / f"{KEY_ID}.pem")}
                remote = {**local, **options, **key, "layout": "aiven"}
                ours.run("kafkalog", remote, action="count", expect=topic.records)
                seconds = in_turn(
                    {
                        "bucket": partial(ours.run, "kafkalog", remote),
                        "local": partial(ours.run, "kafkalog", local, path=str(path)),
                    },
                    rounds=rounds,
                )
            report.add(
                "object_store",
                f"Aiven, {mode.name.lower()}, {topic.records / 1e6:g} M x {topic.value_size} B from S3",
                M_rows_per_s=rate(topic.records / 1e6, seconds["bucket"]),
                x_local=round(ratio(seconds["local"], seconds["bucket"]), 2),
                bar=">= 0.4",
                worker_peak_MB=ours.worker_peak_mb(),
            )


def write_as_aiven(directory: Path, topic: str, partition: int, target: Path, mode: AivenMode) -> None:
    """Write the segments of a partition as the plugin does, in chunks of 4 MiB."""
    log = PartitionLog(PartitionLocation(topic, partition, str(directory)))
    topic_id_partition = TopicIdPartition(topic, uuid.uuid5(uuid.NAMESPACE_URL, topic), partition)
    for index, files in enumerate(log.segments):
        until = log.next_base_offset(index) or log.log_end_offset
        stem = directory / segment_name(files.base_offset)
        files_by_kind = {
            RemoteFile.LOG: stem.with_suffix(".log").read_bytes(),
            RemoteFile.OFFSET_INDEX: stem.with_suffix(".index").read_bytes(),
            RemoteFile.TIME_INDEX: stem.with_suffix(".timeindex").read_bytes(),
            RemoteFile.PRODUCER_SNAPSHOT: format_producer_snapshot([]),
            RemoteFile.LEADER_EPOCHS: (directory / LEADER_EPOCH_CHECKPOINT).read_bytes(),
        }
        epochs = tuple(read_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT))
        segment = RemoteSegment(
            topic_id_partition,
            uuid.uuid5(uuid.NAMESPACE_URL, f"{topic}-{partition}-{files.base_offset}"),
            files.base_offset,
            until - 1,
            tuple(EpochEntry(epoch.epoch, max(epoch.start_offset, files.base_offset)) for epoch in epochs[-1:]),
            len(files_by_kind[RemoteFile.LOG]),
            FIRST_TIMESTAMP + until,
            1,
            FIRST_TIMESTAMP,
        )
        write_segment(target, segment, files_by_kind, mode, CHUNK_BYTES)


def selective(report: Report) -> None:
    """Report the requests and bytes of a read of the last 1 % of 2 GB by timestamp, in this process."""
    topic = LARGE_VALUES["none"]
    path = ensure([topic])
    size = sum(file.stat().st_size for file in path.glob(f"{topic.name}-*/*.log"))
    with bucket(path) as options:
        read_options = {
            **options,
            "subscribe": topic.name,
            "startingTimestamp": str(topic.timestamp_at(SKIPPED_FRACTION)),
        }
        rows, used, seconds = counted(lambda: read(parse_read_options(read_options)))
    if rows != topic.records // 100:
        raise RuntimeError(f"{rows} rows, expected {topic.records // 100}")
    report.add(
        "object_store",
        f"last 1 % of {size / 1e9:.2f} GB by startingTimestamp",
        seconds=round(seconds, 2),
        bytes_percent=round(100 * used.bytes_read / size, 2),
        bar_bytes="<= 3",
        requests_a_partition=round((used.list + used.get + used.head) / PARTITIONS, 1),
        bar_requests="<= 20",
    )


def planning(report: Report) -> None:
    """Report planning a read of 10,000 segments of 100 partitions: all offsets, and the last 1 % by offset."""
    with TemporaryDirectory(prefix="kafkalog-bench-") as directory:
        logs = many_segments(Path(directory))
        with bucket(logs) as options:
            end = MANY_SEGMENTS * 2
            last = json.dumps({"t": {str(n): end - 2 for n in range(MANY_PARTITIONS)}})
            for what, more in (("everything", {}), ("last 1 % by startingOffsets", {"startingOffsets": last})):
                parsed = parse_read_options({**options, "subscribe": "t", **more})
                splits, used, seconds = counted(partial(plan, parsed, RowFilter()))
                report.add(
                    "object_store",
                    f"planning {MANY_PARTITIONS * MANY_SEGMENTS} segments of {MANY_PARTITIONS} partitions, {what}",
                    seconds=round(seconds, 2),
                    bar="<= 2",
                    LIST=used.list,
                    bar_LIST="<= 120",
                    GET=used.get,
                    tasks=len(splits),
                )


def many_segments(directory: Path) -> Path:
    """Write a log directory of segments with two records each, and return it."""
    for partition in range(MANY_PARTITIONS):
        for _ in range(MANY_SEGMENTS):
            append(directory, "t", partition, ["x", "y"], roll_first=True)
    return directory


def counted(work: Callable[[], Any]) -> tuple[Any, RequestCounts, float]:
    """Call `work`. Return its result, its requests to the store, and its seconds."""
    before, begin = all_counts(), time.perf_counter()
    result = work()
    return result, all_counts() - before, time.perf_counter() - begin


def read(options: ReadOptions) -> int:
    """Plan and read as the tasks of a query do. Return the number of rows."""
    request, buffers = scan_request(options, RowFilter(), options.columns), ScanBuffers()

    def rows_of(split: Split) -> Iterator[pa.RecordBatch]:
        resolved = resolve_split(split, options)
        assert resolved is not None
        return scan_range(resolved.log, split.range, request, split.hint, buffers, fail_on_data_loss=True)

    scanned = chain.from_iterable(map(rows_of, plan(options, RowFilter())))
    return sum(batch.num_rows for batch in coalesce_batches(scanned))


def main(report: Report, words: Sequence[str] = ()) -> None:
    """Run all parts, or those in `words`."""
    for part in (planning, selective, full, tiered):
        if not words or part.__name__ in words:
            part(report)


if __name__ == "__main__":
    main(Report(), sys.argv[1:])
