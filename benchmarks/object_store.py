"""The same files in a bucket: an S3 server on this machine (versitygw) over the log directory that is read locally.

The server takes its share of the two cores, which a real bucket does not; a real bucket answers later, which reading
ahead hides. `python -m benchmarks.object_store full` runs one part: planning, selective, full, tiered.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.data import LARGE_VALUES, SMALL_VALUES, ensure
from benchmarks.report import Report, in_turn, rate, ratio
from benchmarks.spark_session import SparkSession
from benchmarks.topics import FIRST_TIMESTAMP, PARTITIONS, home
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry, read_leader_epochs
from kafkalog_spark.format.names import segment_name
from kafkalog_spark.format.producer_snapshot import format_producer_snapshot
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition
from kafkalog_spark.source.log_bounds import resolve_split
from kafkalog_spark.source.option_parsing import parse_read_options
from kafkalog_spark.source.options import ReadOptions
from kafkalog_spark.source.planning import plan
from kafkalog_spark.source.range_scan import scan_range
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.source.split import Split
from kafkalog_spark.source.task_rows import rows_of_splits, scan_request
from kafkalog_spark.store.object_client import all_counts
from kafkalog_spark.store.request_counts import RequestCounts
from tests.interop.connector import Connector
from tests.interop.real_kafka import RealKafka
from tests.log.tiered.aiven_writer import KEY_ID, KEYS, AivenMode, write_segment
from tests.source.helpers.made_logs import append
from tests.store.s3_server import S3Server

BUCKET = "machine"
CODECS = ("none", "lz4")
PART = 0.99
MANY_PARTITIONS, MANY_SEGMENTS = 100, 100
CHUNK_BYTES = 4 << 20  # what the plugin's README suggests


@contextmanager
def bucket(directory: Path) -> Iterator[dict[str, str]]:
    """`directory` as the top of a bucket; gives the options that read it, path among them."""
    with TemporaryDirectory(prefix="kafkalog-bench-") as top:
        (Path(top) / BUCKET).symlink_to(directory)
        with S3Server(Path(top)) as server:
            yield {"path": f"s3a://{BUCKET}", **server.options}


def full(report: Report, rounds: int = 5) -> None:
    """Full reads to `noop`, on local[2]: bucket, local directory, format("kafka")."""
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
    """Full reads to `noop` of segments that Aiven's plugin has compressed, or compressed and encrypted, on S3; beside
    the same records in a local log directory."""
    topic = SMALL_VALUES["none"]
    path = ensure([topic])
    local: dict[str, object] = {"subscribe": topic.name}
    with TemporaryDirectory(prefix="kafkalog-bench-") as top, SparkSession() as ours:
        for mode in (AivenMode.ZSTD, AivenMode.ZSTD_ENCRYPTED):
            tree = Path(top) / mode.name
            for partition in range(PARTITIONS):
                as_aiven(path / f"{topic.name}-{partition}", topic.name, partition, tree, mode)
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


def as_aiven(directory: Path, topic: str, partition: int, target: Path, mode: AivenMode) -> None:
    """The segments of a partition that was closed cleanly, as the plugin writes them, in chunks of 4 MiB."""
    log = PartitionLog(PartitionLocation(topic, partition, str(directory)))
    of = TopicIdPartition(topic, uuid.uuid5(uuid.NAMESPACE_URL, topic), partition)
    for index, files in enumerate(log.segments):
        until = log.next_base_offset(index) or log.log_end_offset
        stem = directory / segment_name(files.base_offset)
        held = {
            RemoteFile.LOG: stem.with_suffix(".log").read_bytes(),
            RemoteFile.OFFSET_INDEX: stem.with_suffix(".index").read_bytes(),
            RemoteFile.TIME_INDEX: stem.with_suffix(".timeindex").read_bytes(),
            RemoteFile.PRODUCER_SNAPSHOT: format_producer_snapshot([]),
            RemoteFile.LEADER_EPOCHS: (directory / LEADER_EPOCH_CHECKPOINT).read_bytes(),
        }
        epochs = tuple(read_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT))
        segment = RemoteSegment(
            of,
            uuid.uuid5(uuid.NAMESPACE_URL, f"{topic}-{partition}-{files.base_offset}"),
            files.base_offset,
            until - 1,
            tuple(EpochEntry(epoch.epoch, max(epoch.start_offset, files.base_offset)) for epoch in epochs[-1:]),
            len(held[RemoteFile.LOG]),
            FIRST_TIMESTAMP + until,
            1,
            FIRST_TIMESTAMP,
        )
        write_segment(target, segment, held, mode, CHUNK_BYTES)


def selective(report: Report) -> None:
    """The last 1 % of 2 GB by timestamp: requests and bytes, counted in this process."""
    topic = LARGE_VALUES["none"]
    path = ensure([topic])
    size = sum(file.stat().st_size for file in path.glob(f"{topic.name}-*/*.log"))
    with bucket(path) as options:
        asked = {**options, "subscribe": topic.name, "startingTimestamp": str(topic.timestamp_at(PART))}
        rows, used, seconds = counted(lambda: read(parse_read_options(asked)))
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
    """10,000 segments of 100 partitions: every offset, and the last 1 % by offset and by time."""
    with TemporaryDirectory(prefix="kafkalog-bench-") as home_:
        logs = many_segments(Path(home_))
        with bucket(logs) as options:
            end = MANY_SEGMENTS * 2
            last = json.dumps({"t": {str(n): end - 2 for n in range(MANY_PARTITIONS)}})
            for what, more in (("everything", {}), ("last 1 % by startingOffsets", {"startingOffsets": last})):
                asked = parse_read_options({**options, "subscribe": "t", **more})
                splits, used, seconds = counted(partial(plan, asked, RowFilter()))
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


def many_segments(home_: Path) -> Path:
    """A log directory of small segments, two records each."""
    for partition in range(MANY_PARTITIONS):
        for _ in range(MANY_SEGMENTS):
            append(home_, "t", partition, ["x", "y"], roll_first=True)
    return home_


def counted(work: Callable[[], Any]) -> tuple[Any, RequestCounts, float]:
    """What `work` returned, the requests that it made, and its seconds."""
    before, begin = all_counts(), time.perf_counter()
    result = work()
    return result, all_counts() - before, time.perf_counter() - begin


def read(options: ReadOptions) -> int:
    """Plan and read, as a query's tasks do; returns the number of rows."""
    request = scan_request(options, RowFilter(), options.columns)

    def rows_of(split: Split, request: Any, space: Any) -> Any:
        found = resolve_split(split, options)
        assert found is not None
        return scan_range(found.log, split.range, request, split.hint, space, fail_on_data_loss=True)

    return sum(batch.num_rows for batch in rows_of_splits(rows_of, plan(options, RowFilter()), request))


def main(report: Report, words: Sequence[str] = ()) -> None:
    """All parts, or those named."""
    for part in (planning, selective, full, tiered):
        if not words or part.__name__ in words:
            part(report)


if __name__ == "__main__":
    main(Report(), sys.argv[1:])
