"""A real Kafka loads a copy of a bucket that Spark has written to, returns its records and appends further ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.real_kafka import RealKafka, available
from tests.interop.test_real_kafka_reads_the_sink import (
    COUNT,
    PARTITIONS,
    TOPIC,
    check_segments,
    consumed,
    in_files,
    produce,
    rows,
)
from tests.sink.helpers.written_buckets import Place, kill_at, killed, write
from tests.sink.helpers.written_logs import table
from tests.store import s3_server
from tests.store.s3_server import S3Server

pytestmark = [
    pytest.mark.skipif(available() is not None, reason=str(available())),
    pytest.mark.skipif(s3_server.available() is not None, reason=str(s3_server.available())),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3") / "buckets") as running:
        running.make_bucket("tier")
        yield running


def uploaded(kafka: RealKafka, server: S3Server, scratch: Path) -> Place:
    """A bucket with the partitions that lie in Kafka's directory, as a backup of a stopped broker would have them."""
    place = Place.new(server)
    for partition in range(PARTITIONS):
        shutil.copytree(kafka.partition_dir(TOPIC, partition), scratch / f"{TOPIC}-{partition}")
    place.put_directory(scratch)
    return place


def put_back(kafka: RealKafka, place: Place, scratch: Path) -> None:
    """The bucket's partitions in place of Kafka's, as a restore does."""
    copy = place.copy_to(scratch)
    for partition in range(PARTITIONS):
        directory = kafka.partition_dir(TOPIC, partition)
        shutil.rmtree(directory)
        shutil.copytree(copy / f"{TOPIC}-{partition}", directory)


@pytest.mark.parametrize("start", ["clean", "crashed"])
def test_kafka_loads_a_copy_of_the_bucket_and_continues(tmp_path: Path, server: S3Server, start: str) -> None:
    """Kafka, the sink on a copy in a bucket, Kafka on a copy of that. A writer is stopped in between; partition 2 ends
    with an empty active segment. `crashed`: Kafka has no marker of a clean stop, and checks what it loads."""
    kafka = RealKafka(tmp_path, short_lived=True)
    kafka.start()
    settings: dict[str, Any] = {"topic": TOPIC, "segment_bytes": "64k", "batch_size": "3000"}
    try:
        kafka.create_topic(TOPIC, PARTITIONS, {"internal.segment.bytes": 60_000})
        produce(kafka, 300, b"first")
        kafka.stop()
        empty = kafka.partition_dir(TOPIC, 2) / "00000000000000000100.log"
        assert not empty.exists()
        for suffix in (".log", ".index", ".timeindex"):
            empty.with_suffix(suffix).write_bytes(b"")
        place = uploaded(kafka, server, tmp_path / "upload")
        ours = rows("bucket")
        write(place.bucket(), table(ours[:2000]), table(ours[2000:]), query="q", batch=0, **settings)
        with killed():
            write(place.bucket(kill_at(12)), table(rows("more", 500)), query="q", batch=1, **settings)
        write(place.bucket(), table(rows("more", 500)), query="q", batch=1, compression_type="zstd", **settings)
        put_back(kafka, place, tmp_path / "back")
        if start == "crashed":
            (kafka.data_dir / ".kafka_cleanshutdown").unlink()
        check_segments(kafka, TOPIC)
        kafka.start()
        found = consumed(kafka)
        assert found == in_files(kafka.data_dir)
        assert len(found) == 300 + COUNT + 500
        assert sorted(repr(row["value"]) for row in ours + rows("more", 500)) == sorted(
            repr(value) for _, _, _, value, _, _ in found if not (value or b"").startswith(b"first ")
        )
        produce(kafka, 30, b"second")
        assert len(consumed(kafka)) == 330 + COUNT + 500
        kafka.stop()
        check_segments(kafka, TOPIC)
    finally:
        kafka.kill()
