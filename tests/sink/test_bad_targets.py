"""Directories that cannot be written to: said at once, and left as they were."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from kafkalog_spark.errors import (
    CorruptFile,
    KafkalogError,
    NotALogDirectory,
    OptionError,
    UnsupportedFormat,
)
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.sink.option_parsing import parse_write_options
from kafkalog_spark.sink.writer import KafkaLogBatchWriter
from kafkalog_spark.source.options import READ_ONLY_OPTIONS
from tests.sink.helpers.crashing_steps import in_child
from tests.sink.helpers.written_logs import (
    check_log,
    committer,
    everything,
    open_job,
    stage,
    staged_files,
    texts,
    values,
    write,
)

SCHEMA = StructType([StructField("value", StringType())])


def open_for_write(path: Path) -> KafkaLogBatchWriter:
    return KafkaLogBatchWriter(parse_write_options({"path": str(path), "topic": "t"}), SCHEMA)


def a_file(path: Path) -> None:
    path.rmdir()
    path.write_text("x")


def a_partition(path: Path) -> None:
    write(path / "data", values("a", topic="t"))
    shutil.copytree(path / "data" / "t-0", path, dirs_exist_ok=True)


def photographs(path: Path) -> None:
    (path / "holiday.jpg").write_bytes(b"jpg")


def parent_of_brokers(path: Path) -> None:
    write(path / "broker-0", values("a", topic="t"))


def newer_meta(path: Path) -> None:
    (path / "meta.properties").write_text("version=2\ncluster.id=a\nnode.id=1\n")


def broken_meta(path: Path) -> None:
    (path / "meta.properties").write_text("cluster.id=a\n")


RECORD_FILE = "kafkalog.commits-00000000000000000000.json"


def newer_record(path: Path) -> None:
    write(path, values("a", topic="t"))
    (path / RECORD_FILE).write_text('{"version": 1, "queries": {}}')


def broken_record(path: Path) -> None:
    write(path, values("a", topic="t"))
    (path / RECORD_FILE).write_text(
        '{"version": 0, "id": "a", "job": null, "queries": {"a": -1}, "topics": [], "segments": []}'
    )


def record_of_another_directory(path: Path) -> None:
    write(path, values("a", topic="t"))
    staged = f"kafkalog.sink-{'0' * 32}-0-a-0.log"
    (path / staged).write_bytes(b"x")
    segment = {"topic": "../elsewhere/t", "partition": 0, "base_offset": 0, "records": 1, "leader_epoch": 0,
               "epochs": None, "replaces_empty": False, "pieces": [{"name": staged, "size": 1}]}  # fmt: skip
    record = {"version": 0, "id": "a", "job": "0" * 32, "queries": {}, "topics": [], "segments": [segment]}
    (path / RECORD_FILE).write_text(json.dumps(record))


def nested_record(path: Path) -> None:
    write(path, values("a", topic="t"))
    (path / RECORD_FILE).write_text("[" * 100_000)


BAD: dict[str, tuple[Callable[[Path], None], type[KafkalogError], str]] = {
    "a file": (a_file, NotALogDirectory, "is a file, expected a log directory"),
    "one partition's directory": (a_partition, NotALogDirectory, "it is the directory of one partition; give its par"),
    "another program's directory": (photographs, NotALogDirectory, "is not a Kafka log directory"),
    "a parent of log directories": (
        parent_of_brokers,
        NotALogDirectory,
        "target/broker-0 is a log directory: give that",
    ),
    "a newer meta.properties": (newer_meta, UnsupportedFormat, "version 2 of meta.properties, only 0 and 1 are known"),
    "a broken meta.properties": (broken_meta, CorruptFile, "no key 'version'"),
    "a newer release's sink": (
        newer_record,
        UnsupportedFormat,
        "the commit record has version 1.*use that release",
    ),
    "a record of sinks with another directory": (
        record_of_another_directory,
        CorruptFile,
        "is not the name of a topic",
    ),
    "a record of sinks without an end": (nested_record, CorruptFile, "the file is not JSON"),
    "a broken record of sinks": (broken_record, CorruptFile, "kafkalog.commits-.*restore it from a backup"),
}


@pytest.mark.parametrize("case", BAD)
def test_target_without_a_log_directory_is_refused_before_writing(tmp_path: Path, case: str) -> None:
    make, kind, text = BAD[case]
    target = tmp_path / "target"
    target.mkdir()
    make(target)
    before = everything(tmp_path)
    with pytest.raises(kind, match=text):
        open_for_write(target)
    assert everything(tmp_path) == before


def test_empty_or_new_directory_is_accepted(tmp_path: Path) -> None:
    for target in (tmp_path, tmp_path / "new" / "data"):
        job = open_for_write(target)
        committer(target).abort([job.job])
    assert everything(tmp_path) == {"new": b""}, "a directory made for the write goes with it"


@pytest.mark.parametrize(("mode", "what"), [(0o555, "written"), (0o311, "read")])
def test_directory_without_permissions_is_refused_before_writing(tmp_path: Path, mode: int, what: str) -> None:
    write(tmp_path / "data", values("a", topic="t"))
    before = everything(tmp_path)
    os.chmod(tmp_path / "data", mode)
    for parent in tmp_path.parents:  # pytest's own directories are for their owner only
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            os.chmod(parent, parent.stat().st_mode | 0o055)
    os.chmod(tmp_path, 0o755)

    def as_nobody() -> None:
        if os.getuid() == 0:  # root may write everywhere
            os.setuid(65534)
        with pytest.raises(NotALogDirectory, match=f"cannot be {what}: Permission denied"):
            open_for_write(tmp_path / "data")

    assert in_child(as_nobody) == 0
    os.chmod(tmp_path / "data", 0o755)
    assert everything(tmp_path) == before


def test_task_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, values("a", topic="t"))
    before = everything(tmp_path)

    def with_small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        job = open_job(tmp_path)
        with pytest.raises(NotALogDirectory, match="cannot be written: File too large"):
            stage(tmp_path, job, values(*(f"{n:0100d}" for n in range(5000)), topic="t"))
        committer(tmp_path).abort([job])

    assert in_child(with_small_files_only) == 0
    assert everything(tmp_path) == before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here; the limit on file sizes above stands in for it")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("rows", [7_000, 9_500])
def test_commit_on_a_full_disk_leaves_the_log_unchanged(small_disk: Path, rows: int) -> None:
    """Fewer rows: the tasks' files still fit, joining them does not. More: the tasks' do not."""
    write(small_disk, values("a", topic="t"))
    logs = everything(small_disk / "t-0")
    job = open_job(small_disk)
    half = values(*(f"{n:0100d}" for n in range(rows // 2)), topic="t")
    with pytest.raises(NotALogDirectory, match="No space left on device"):
        committer(small_disk).commit(job, stage(small_disk, job, half, half), 1 << 30)
    committer(small_disk).abort([job])
    assert everything(small_disk / "t-0") == logs
    assert staged_files(small_disk) == []
    write(small_disk, values("b", topic="t"))
    assert texts(small_disk) == ["a", "b"]
    check_log(small_disk)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "no log directory is given"),
        ({"path": "/a,/b"}, "must be one log directory"),
        (
            {"path": "hdfs://a/b"},
            r"or to a bucket \(s3://, gs://, abfss://\), got 'hdfs://a/b'",
        ),
        ({"path": "/a", "topic": "a b"}, "option 'topic': 'a b' is not the name of a topic"),
        ({"path": "/a", "topic": ".."}, r"'\.\.' is not the name of a topic"),
        ({"path": "/a", "topic": "__consumer_offsets"}, "is internal to Kafka"),
        (
            {"path": "/a", "compression.type": "lzo"},
            f"must be one of {', '.join(codec.label for codec in Codec)}, got 'lzo'",
        ),
        ({"path": "/a", "compression.level": "3"}, "option 'compression.level': none has no compression levels"),
        ({"path": "/a", "compression.type": "gzip", "compression.level": "10"}, "gzip levels go from 1 to 9"),
        ({"path": "/a", "compression.type": "gzip", "compression.level": "best"}, "must be a whole number"),
        ({"path": "/a", "batch.size": "0"}, "batch.size must be positive"),
        ({"path": "/a", "batch.size": "61"}, "option 'batch.size' must be between 62"),
        ({"path": "/a", "batch.size": "2m"}, r"'batch.size' is 2097152, larger than 'max.message.bytes' \(1048588\)"),
        ({"path": "/a", "segment.bytes": "32k"}, r"'batch.size' is 65536, larger than 'segment.bytes' \(32768\)"),
        ({"path": "/a", "numPartitions": "0"}, "numPartitions must be positive"),
        ({"path": "/a", "message.timestamp.type": "now"}, "must be one of CreateTime, LogAppendTime, got 'now'"),
        ({"path": "/a", "numPartition": "3"}, "unknown option 'numPartition'; did you mean 'numPartitions'?"),
        ({"path": "/a", "compression": "zstd"}, "unknown option 'compression'; did you mean 'compression.type'?"),
        ({"path": "/a", "topics": "t"}, "unknown option 'topics'; did you mean 'topic'?"),
        ({"path": "/a", "colour": "red"}, "unknown option 'colour'; docs/options.md and docs/sink.md list the options"),
        (
            {"path": "/a", "subscribe": "t"},
            "option 'subscribe' is a read option, and this is a write; a view over a log",
        ),
        ({"path": "/a", "kafka.isolation.level": "x"}, "option 'kafka.isolation.level' is a read option"),
        (
            {"kafka.bootstrap.servers": "a:1", "startingOffsets": "earliest"},
            "option 'startingOffsets' is a read option",
        ),
        (
            {"kafka.bootstrap.servers": "a:1", "path": "/a"},
            "options 'path' and 'kafka.bootstrap.servers' are both given",
        ),
        ({"topic": "t"}, r'no log directory is given; name it in .save\("/data/kafka-logs"\)$'),
        ({}, r"INSERT INTO table WITH \('path' = '...', 'topic' = '...'\)"),
        ({"path": "/a", "kafka.compression.type": "lz4"}, "did you mean 'compression.type'?"),
        ({"path": "/a", "kafka.value.serializer": "x"}, "Kafka option 'value.serializer' is not supported as values"),
    ],
)
def test_invalid_write_options_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text.replace("?", r"\?") if "did you" in text else text):
        parse_write_options(given, READ_ONLY_OPTIONS)


def test_sparks_own_stream_options_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    given = {"path": "/a", "checkpointLocation": "/c", "queryname": "q"}  # queryName as Spark hands it over
    assert parse_write_options(given, READ_ONLY_OPTIONS).ignored == ()
    assert caplog.messages == []


def test_tilde_in_the_path_is_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/users/me")
    assert parse_write_options({"path": "~/logs"}).path == "/users/me/logs"


def test_options_without_effect_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    parsed = parse_write_options({"path": "/a", "kafka.acks": "all", "includeHeaders": "true"})
    assert parsed.ignored == ("kafka.acks", "includeHeaders")
    assert "options without effect on a write of kafkalog: kafka.acks, includeHeaders" in caplog.text
    parsed = parse_write_options({"kafka.bootstrap.servers": "a:1", "kafka.acks": "1", "numPartitions": "3",
                                  "compression.type": "lz4"})  # fmt: skip
    assert parsed.ignored == ("numPartitions",)
    assert parsed.producer == {"bootstrap.servers": "a:1", "acks": "1", "compression.type": "lz4"}
