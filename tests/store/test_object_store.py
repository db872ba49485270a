"""Buckets, asked of a real S3 server through a proxy that counts: few requests, the version that was listed, clear
errors."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from kafkalog_spark.store import object_file
from kafkalog_spark.store.interface import FileFacts
from kafkalog_spark.store.object_client import all_counts
from kafkalog_spark.store.object_file import PIECE
from kafkalog_spark.store.object_store import ObjectStore, _facts_of
from kafkalog_spark.store.request_counts import RequestCounts
from tests.store.buckets import s3_store
from tests.store.fault_proxy import FaultProxy
from tests.store.s3_server import S3Server

MB = 1 << 20
DATA = random.Random(2).randbytes(20 * MB)


@pytest.fixture
def top() -> str:
    return f"s3://tier/{uuid4().hex}"


@pytest.fixture
def writer(s3: S3Server) -> ObjectStore:
    """Past the proxy."""
    return s3_store(s3)


@pytest.fixture
def store(s3: S3Server, proxy: FaultProxy) -> Iterator[ObjectStore]:
    """Through the proxy; what it counted and what the proxy saw must be the same at the end."""
    made = s3_store(s3, proxy)
    yield made
    counts = made.counts()
    assert (counts.list, counts.get, counts.head) == tuple(proxy.count(kind) for kind in ("LIST", "GET", "HEAD"))


def test_listed_segment_is_read_with_one_request_per_block(
    store: ObjectStore, proxy: FaultProxy, writer: ObjectStore, top: str
) -> None:
    writer.put(f"{top}/0.log", DATA)
    before = store.counts()
    file = store.open(f"{top}/0.log", store.list(top).files["0.log"])
    file.expect(0, len(DATA))
    target = bytearray(len(DATA))
    for at in range(0, len(DATA), 2 * MB):
        file.read_into(at, memoryview(target)[at : at + 2 * MB])
    assert target == DATA
    ranges = [tuple(map(int, seen.range.removeprefix("bytes=").split("-"))) for seen in proxy.seen if seen.range]
    assert sorted(ranges) == [(0, 2 * MB - 1), (2 * MB, 6 * MB - 1), (6 * MB, 14 * MB - 1), (14 * MB, 20 * MB - 1)]
    assert store.counts() - before == RequestCounts(list=1, get=4, bytes_read=len(DATA))
    assert proxy.sent - len(DATA) < 2000, "but for the listing"


def test_planning_reads_a_segment_with_one_request(
    store: ObjectStore, proxy: FaultProxy, writer: ObjectStore, top: str
) -> None:
    writer.put(f"{top}/0.log", DATA)
    facts = store.list(top).files["0.log"]
    proxy_before = proxy.count()
    file = store.open(f"{top}/0.log", facts)
    for position in (MB, MB + 61, MB + 5000):  # the batch of an index entry, and those after it
        assert file.read(position, 61) == DATA[position : position + 61]
    assert proxy.count() - proxy_before == 1
    assert proxy.seen[-1].sent == PIECE


def test_small_object_is_read_with_one_request(
    store: ObjectStore, proxy: FaultProxy, writer: ObjectStore, top: str
) -> None:
    writer.put(f"{top}/0.index", DATA[:20_000])
    facts = store.list(top).files["0.index"]
    file = store.open(f"{top}/0.index", facts)
    file.expect(0, 20_000)
    assert file.read(0, 20_000) == DATA[:20_000]
    assert store.read_all(f"{top}/0.index", 30_000) == DATA[:20_000]
    assert store.read_all(f"{top}/0.index", 5) == DATA[:5]
    assert (proxy.count("GET"), proxy.count("HEAD")) == (3, 0)


def test_directory_of_many_objects_is_listed_page_by_page(
    s3: S3Server, store: ObjectStore, proxy: FaultProxy, writer: ObjectStore, top: str
) -> None:
    names = [f"{number:020d}.log" for number in range(2300)]
    if s3.serves_files:
        folder = s3.directory / top.removeprefix("s3://")
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_bytes(b"x")
    else:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda name: writer.put(f"{top}/{name}", b"x"), names))
    assert sorted(store.list(top).names) == names
    assert proxy.count("LIST") == 3
    tail = store.list(top, after=names[2250])
    assert (sorted(tail.names), proxy.count("LIST")) == (names[2251:], 4)
    assert proxy.seen[-1].query["start-after"] == [f"{top.removeprefix('s3://tier/')}/{names[2250]}"]
    assert store.list(top, after=names[-1]).names == []
    assert store.exists(top)
    assert proxy.count() == 6


def test_directory_marker_objects_are_listed_as_directories(
    store: ObjectStore, s3: S3Server, writer: ObjectStore, top: str
) -> None:
    """Consoles and Hadoop make an empty object of the directory's name with a slash at its end."""
    for path in (f"{top}/orders-0", f"{top}/orders-0/sub"):
        s3.file_system().create_dir(path.removeprefix("s3://"))
    writer.put(f"{top}/orders-0/0.log", b"x")
    listing = store.list(f"{top}/orders-0")
    assert (sorted(listing.names), sorted(listing.files)) == (["0.log", "sub"], ["0.log"])
    assert listing.is_directory("sub")
    assert store.list(top).is_directory("orders-0")
    assert store.exists(f"{top}/orders-0/sub")


def test_empty_bucket_is_a_directory(s3: S3Server) -> None:
    s3.make_bucket("empty-one")
    store = s3_store(s3, bucket="empty-one")
    assert store.list("s3://empty-one").names == []
    assert store.exists("s3://empty-one")
    assert not store.exists("s3://empty-one/x")


@pytest.mark.parametrize("known", [True, False], ids=["etag", "size alone"])
def test_object_replaced_during_a_read_raises_an_error(
    store: ObjectStore, writer: ObjectStore, top: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_file, "FIRST_BLOCK", MB)
    writer.put(f"{top}/0.log", DATA)
    facts = store.list(top).files["0.log"]
    file = store.open(f"{top}/0.log", facts if known else FileFacts(facts.size, ""))
    assert file.read(0, 100) == DATA[:100]
    writer.put(f"{top}/0.log", DATA[::-1] if known else DATA[:-1])
    assert file.has_changed()
    with pytest.raises(FileNotFoundError, match="replaced"):
        file.read(10 * MB, 100)
    file.expect(5 * MB, 8 * MB)
    for block in (5 * MB, 6 * MB):  # both were asked for at once
        with pytest.raises(FileNotFoundError, match="replaced"):
            file.read(block, 100)


def test_object_deleted_during_a_read_raises_an_error(store: ObjectStore, writer: ObjectStore, top: str) -> None:
    writer.put(f"{top}/0.log", DATA)
    file = store.open(f"{top}/0.log", store.list(top).files["0.log"])
    assert file.read(0, 100) == DATA[:100]
    writer.delete([f"{top}/0.log"])
    assert file.has_changed()
    with pytest.raises(FileNotFoundError, match="the object does not exist") as caught:
        file.read(10 * MB, 100)
    assert caught.value.filename == f"{top}/0.log"
    file.expect(5 * MB, 8 * MB)
    with pytest.raises(FileNotFoundError):
        file.read_into(5 * MB, memoryview(bytearray(MB)))


def test_store_without_etags_uses_modification_times_as_versions() -> None:
    """A listing gives milliseconds, the header Last-Modified of a GET seconds."""
    listed = {"size": 5, "e_tag": None, "last_modified": datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)}
    got = {"size": 5, "e_tag": None, "last_modified": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)}
    later = {"size": 5, "e_tag": None, "last_modified": datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)}
    assert _facts_of(listed) == _facts_of(got) == FileFacts(5, 'W/"2026-01-02T03:04:05+00:00"')
    assert _facts_of(later) != _facts_of(got)


def test_clients_are_shared_within_a_process(s3: S3Server) -> None:
    assert s3_store(s3).client is s3_store(s3).client
    assert s3_store(s3).client is not s3_store(s3, more={"storage.max_retries": "3"}).client


def test_request_counts_cover_all_buckets(s3: S3Server, writer: ObjectStore, top: str) -> None:
    before = all_counts()
    writer.put(f"{top}/a", b"123")
    assert s3_store(s3, more={"storage.max_retries": "4"}).read_all(f"{top}/a", 9) == b"123"
    difference = all_counts() - before
    assert difference == RequestCounts(get=1, put=1, bytes_read=3, bytes_written=3)
    assert str(difference) == "1 GET, 1 PUT; 3 bytes read, 3 written"


def test_files_below_a_served_directory_are_objects(s3: S3Server, store: ObjectStore) -> None:
    """As golden trees are served: copied, without attributes that the server has made."""
    if not s3.serves_files:
        pytest.skip("moto keeps its objects in memory")
    folder = s3.directory / "tier" / uuid4().hex
    folder.mkdir()
    (folder / "0.log").write_bytes(DATA[:1000])
    path = f"s3://tier/{folder.name}"
    facts = store.list(path).files["0.log"]
    assert store.open(f"{path}/0.log", facts).read(0, 1000) == DATA[:1000]
    os.unlink(folder / "0.log")
    with pytest.raises(FileNotFoundError):
        store.open(f"{path}/0.log", facts).read(0, 1)
