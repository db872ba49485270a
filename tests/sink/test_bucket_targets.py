"""Buckets that cannot be written to: said before a row is encoded, without a secret. And what a commit asks for."""

from __future__ import annotations

import json
import logging
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from kafkalog_spark.errors import CorruptFile, KafkalogError, NotALogDirectory, OptionError, UnsupportedFormat
from kafkalog_spark.format.names import MAX_PARTITIONS
from kafkalog_spark.sink.bucket_directory import BucketDirectory
from kafkalog_spark.sink.commit_record import CommitRecord, parse_record
from kafkalog_spark.sink.committers import bucket_committer
from kafkalog_spark.sink.option_parsing import parse_write_options
from kafkalog_spark.sink.writer import KafkaLogBatchWriter
from kafkalog_spark.store.object_store import ObjectStore
from tests.sink.helpers.written_buckets import Place, record_name, stage, write
from tests.sink.helpers.written_logs import values
from tests.store.buckets import s3_options, s3_store
from tests.store.fault_proxy import FaultProxy
from tests.store.s3_server import S3Server

SCHEMA = StructType([StructField("value", StringType())])
DOCUMENT = Path(__file__).parents[2] / "docs" / "sink.md"


@pytest.fixture
def place(s3: S3Server) -> Place:
    return Place.new(s3)


def open_for_write(place: Place, path: str | None = None, **more: str) -> KafkaLogBatchWriter:
    given = {"path": path or place.root, "topic": "t", **s3_options(place.server), **more}
    return KafkaLogBatchWriter(parse_write_options(given), SCHEMA)


def put(*names: str, data: bytes = b"x") -> Callable[[BucketDirectory], None]:
    def change(bucket: BucketDirectory) -> None:
        for name in names:
            bucket.replace(name, data)

    return change


BAD: dict[str, tuple[Callable[[BucketDirectory], None], type[KafkalogError], str]] = {
    "one partition's directory": (
        put("00000000000000000000.log"),
        NotALogDirectory,
        "it is the directory of one partition; give its parent s3://tier/[0-9a-f]+, and name",
    ),
    "another program's directory": (put("holiday.jpg", "more/a.jpg"), NotALogDirectory, "is not a Kafka log directory"),
    "a newer meta.properties": (
        put("meta.properties", data=b"version=2\ncluster.id=a\nnode.id=1\n"),
        UnsupportedFormat,
        "version 2 of meta.properties, only 0 and 1 are known",
    ),
    "a broken meta.properties": (put("meta.properties", data=b"cluster.id=a\n"), CorruptFile, "no key 'version'"),
    "a newer release's sink": (
        put(record_name(0), data=b'{"version": 1}'),
        UnsupportedFormat,
        r"the commit record has version 1, only version 0 is supported; a later release.*use that release",
    ),
    "a broken record": (
        put(record_name(0), data=b'{"version": 0, "id": "a"}'),
        CorruptFile,
        "restore it from a backup",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_unwritable_bucket_is_refused_and_unchanged(place: Place, case: str) -> None:
    change, kind, text = BAD[case]
    change(place.bucket())
    before = place.names()
    with pytest.raises(kind, match=text):
        open_for_write(place)
    assert place.names() == before


def test_path_of_an_object_is_refused(place: Place) -> None:
    place.bucket().replace("logs", b"x")
    with pytest.raises(NotALogDirectory, match="is an object, expected a log directory"):
        open_for_write(place, f"{place.root}/logs")


def test_missing_bucket_is_an_error(place: Place) -> None:
    with pytest.raises(NotALogDirectory, match=r"cannot be written: there is no bucket nowhere at 127.0.0.1"):
        open_for_write(place, "s3://nowhere/logs")


def test_wrong_access_keys_are_refused_with_the_needed_permissions(place: Place) -> None:
    if not place.server.serves_files:
        pytest.skip("moto's server looks at no key")
    with pytest.raises(NotALogDirectory, match=r"cannot be written: .*access key.*list, get, put and delete objects"):
        open_for_write(place, **{"fs.s3a.access.key": "unknown"})
    assert place.names() == []


def test_opening_a_new_directory_writes_nothing(place: Place) -> None:
    writer = open_for_write(place)
    assert place.names() == [], "the question whether the store has conditional puts leaves nothing"
    assert writer.committer.directory.path() == place.root
    assert pickle.loads(pickle.dumps(writer)).committer == writer.committer
    assert open_for_write(place, place.root.replace("s3:", "s3a:") + "/").committer == writer.committer


@dataclass
class Careless:
    """A store that puts whatever the condition, as some gateways do."""

    puts: int = 0


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> Careless:
    found = Careless()

    def put_if_absent(self: ObjectStore, path: str, data: Any) -> bool:
        found.puts += 1
        self.put(path, data)
        return True

    monkeypatch.setattr(ObjectStore, "put_if_absent", put_if_absent)
    return found


def test_store_without_conditional_puts_is_refused_before_a_row_is_encoded(place: Place, careless: Careless) -> None:
    with pytest.raises(NotALogDirectory, match=r"ignores If-None-Match, so two writers could overwrite"):
        open_for_write(place)
    assert careless.puts == 2
    assert place.names() == []


def test_bucket_copied_to_a_store_without_conditional_puts_is_refused_at_commit(
    place: Place, request: pytest.FixtureRequest
) -> None:
    """The directory has commits, so the first question was asked elsewhere."""
    write(place.bucket(), values("a", topic="t"), query="q", batch=0)
    before = parse_record(place.bucket().read(record_name(0), 10_000))
    staged = stage(place.bucket(), "ab" * 16, values("b", topic="t"))
    request.getfixturevalue("careless")
    with pytest.raises(NotALogDirectory, match="ignores If-None-Match"):
        bucket_committer(place.bucket()).commit("ab" * 16, staged, 500, "q", 1)
    assert place.commits() == [record_name(0)]
    assert parse_record(place.bucket().read(record_name(0), 10_000)) == before
    assert place.texts() == ["a"]


def test_secrets_appear_in_no_log_or_error(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = place.server.secret_key
    writer = open_for_write(place)
    errors = []
    changes = [{"fs.s3a.endpoint": f"http://user:{secret}@127.0.0.1:1"}]
    if place.server.serves_files:  # moto's server looks at no key
        changes.append({"fs.s3a.secret.key": secret + "x"})
    for change in changes:
        with pytest.raises(KafkalogError) as caught:
            open_for_write(place, **{**change, "storage.max_retries": "0"})
        errors.append(f"{caught.value} {caught.value!r} {caught.value.__cause__!r}")
    write(place.bucket(), values("a", topic="t"), query="q", batch=0)
    objects = [place.bucket().read(name, 1 << 20) for name in place.names()]
    shown = [repr(writer), repr(writer.options), repr(writer.committer), repr(place.bucket()), caplog.text, *errors]
    for text in (*shown, *map(str, objects)):
        assert secret not in text


def test_target_path_is_normalized_and_invalid_paths_are_refused() -> None:
    for path, text in (
        ("s3://key:secret@bucket/logs", "has credentials in front of the bucket's name"),
        ("s3:///logs", "names no bucket"),
        ("s3://a/b,s3://a/c", "must be one log directory"),
        ("hdfs://host/logs", "rows are written to a local directory or to a bucket"),
        ("memory://x/logs", "rows are written to a local directory or to a bucket"),
    ):
        with pytest.raises(OptionError, match=text):
            parse_write_options({"path": path})
    assert parse_write_options({"path": "s3a://a//b/"}).path == "s3://a/b"
    with pytest.raises(OptionError, match=r"there is no option fs.s3a.acess.key; did you mean fs.s3a.access.key"):
        parse_write_options({"path": "s3://a/b", "fs.s3a.acess.key": "x"})


def test_commit_records_are_parsed_strictly() -> None:
    assert parse_record(b'{"version": 0, "id": "a", "job": null, "queries": {}, "topics": [], "segments": []}') == (
        CommitRecord("a")
    )
    elsewhere = b'{"version": 0, "id": "a", "job": null, "queries": {}, "segments": [], "topics": '
    elsewhere += b'[{"name": "../t", "id": "FEjhIyDdTCKRqdTaanlPnA", "partitions": 1}]}'
    piece = {"name": f"kafkalog.sink-{'0' * 32}-0-a-0.log", "size": 100}
    segment = {"topic": "t", "partition": 0, "records": 1, "base_offset": 0, "leader_epoch": 0, "epochs": None,
               "replaces_empty": False, "pieces": [piece]}  # fmt: skip
    topic = {"name": "t", "id": "FEjhIyDdTCKRqdTaanlPnA", "partitions": 1}
    whole = {"version": 0, "id": "a", "job": "0" * 32, "queries": {}, "topics": [topic], "segments": [segment]}
    assert parse_record(json.dumps(whole).encode()).segments[0].size == 100
    for changes in (
        {"job": "../../victim"},
        {"job": ""},
        {"topics": [{**topic, "partitions": MAX_PARTITIONS + 1}]},
        {"segments": [{**segment, "pieces": []}]},
        {"segments": [{**segment, "pieces": [{**piece, "name": "../../x.log"}]}]},
        {"segments": [{**segment, "partition": 2**31}]},
        {"segments": [{**segment, "leader_epoch": 2**31}]},
        {"segments": [{**segment, "base_offset": 2**63 - 1}]},
        {"segments": [{**segment, "epochs": [[2**31, 0]]}]},
    ):
        with pytest.raises(CorruptFile):
            parse_record(json.dumps({**whole, **changes}).encode())
    for broken in (
        b"",
        b"[]",
        b'{"version": 0}',
        elsewhere,
        elsewhere.replace(b"../t", b"t").replace(b'"partitions": 1', b'"partitions": 2147483647'),
        b'{"version": 0, "id": 1, "job": 1, "queries": 1, "topics": 1}',
    ):
        with pytest.raises(CorruptFile):
            parse_record(broken)


def requests_of(place: Place, proxy: FaultProxy, tasks: list[list[int]]) -> dict[str, int]:
    """Of the second micro-batch whose tasks have rows of those partitions: LIST, GET, PUT ..., without what opens the
    write."""
    partitions = max(max(task) for task in tasks) + 1
    for batch in range(2):
        proxy.forget()
        bucket = BucketDirectory(place.root, s3_store(place.server, proxy))
        job = f"{batch:032x}"
        rows = [[values("x", topic="t", partition=partition) for partition in task] for task in tasks]
        staged = stage(bucket, job, *rows, numPartitions=partitions)
        bucket_committer(bucket).commit(job, staged, 1 << 30, "q", batch)
    counted: dict[str, int] = {}
    for seen in proxy.seen:
        # obstore deletes many objects by one POST
        operation = "DELETE" if seen.method == "POST" and "delete" in seen.query else seen.operation
        counted[operation] = counted.get(operation, 0) + 1
    return counted


@pytest.mark.parametrize("tasks", [[[0]], [[0, 1], [2, 3]], [[0, 1, 2], [0, 1, 2], [1]]], ids=str)
def test_commit_sends_the_documented_requests(s3: S3Server, proxy: FaultProxy, tasks: list[list[int]]) -> None:
    told = DOCUMENT.read_text().partition("<!-- requests: held by a test -->")[2].partition("<!-- requests end -->")[0]
    rows = re.findall(r"^\| ([A-Z]+) \| (\d+)(?: \+ (\d+) P)?(?: \+ (\d+) T)?(?: \+ (\d+) S)? \|", told, re.MULTILINE)
    partitions, staged = len({n for task in tasks for n in task}), sum(map(len, tasks))
    expected = {
        kind: int(fixed) + int(p or 0) * partitions + int(t or 0) * len(tasks) + int(s or 0) * staged
        for kind, fixed, p, t, s in rows
    }
    assert requests_of(Place.new(s3), proxy, tasks) == expected
