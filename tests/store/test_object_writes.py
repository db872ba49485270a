"""Writing to a real S3 server: whole objects, large ones in parts, and one that only the first writer makes."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from kafkalog_spark.store import object_store
from kafkalog_spark.store.failures import TryFailed
from kafkalog_spark.store.object_client import ObjectClient
from kafkalog_spark.store.object_store import PART, ObjectStore
from tests.store.buckets import s3_store
from tests.store.fault_proxy import Fault, FaultKind, FaultProxy, at
from tests.store.s3_server import S3Server

FIRST, SECOND = b"the first writer's", b"the second writer's"


@pytest.fixture
def top() -> str:
    return f"s3://tier/{uuid4().hex}"


@pytest.fixture
def writer(s3: S3Server, proxy: FaultProxy) -> ObjectStore:
    return s3_store(s3, proxy)


def test_put_replaces_the_whole_object(writer: ObjectStore, proxy: FaultProxy, top: str) -> None:
    writer.put(f"{top}/a", FIRST)
    writer.put(f"{top}/a", SECOND)
    writer.put(f"{top}/empty", b"")
    assert writer.read_all(f"{top}/a", 100) == SECOND
    assert writer.read_all(f"{top}/empty", 100) == b""
    counts = writer.counts()
    assert (counts.put, counts.bytes_written) == (3, len(FIRST) + len(SECOND))
    assert proxy.count("PUT") == 3


def test_large_objects_are_uploaded_in_parts(writer: ObjectStore, proxy: FaultProxy, top: str) -> None:
    data = random.Random(3).randbytes(2 * PART + 5)
    writer.exists(top)  # a store that has answered is one whose failing parts alone are sent again
    number = proxy.count()
    proxy.plan = at({number + 2: Fault(FaultKind.SLOW_DOWN)})
    writer.put(f"{top}/large", memoryview(data))
    assert writer.read_all(f"{top}/large", len(data) + 1) == data
    assert [seen.method for seen in proxy.seen if seen.status == 200].count("PUT") == 3
    assert proxy.count("POST") == 2, "the upload was begun and completed once"
    assert writer.counts().put == 5


def test_put_if_absent_succeeds_only_for_the_first_writer(writer: ObjectStore, top: str) -> None:
    assert writer.put_if_absent(f"{top}/commit", FIRST) is True
    assert writer.put_if_absent(f"{top}/commit", SECOND) is False
    assert writer.put_if_absent(f"{top}/commit", FIRST) is False, "the same bytes by another writer"
    assert writer.read_all(f"{top}/commit", 100) == FIRST


def test_put_if_absent_by_concurrent_writers_succeeds_once(s3: S3Server, top: str) -> None:
    writer = s3_store(s3)
    for attempt in range(5):
        path = f"{top}/commit-{attempt}"
        with ThreadPoolExecutor(8) as threads:
            won = list(threads.map(lambda number, path=path: writer.put_if_absent(path, b"%d" % number), range(8)))
        assert sum(won) == 1
        assert writer.read_all(path, 10) == b"%d" % won.index(True)


@pytest.mark.parametrize("kind", [FaultKind.INTERNAL_ERROR, FaultKind.RESET])
def test_failed_put_is_retried(writer: ObjectStore, proxy: FaultProxy, top: str, kind: FaultKind) -> None:
    proxy.plan = at({0: Fault(kind)})
    assert writer.put_if_absent(f"{top}/commit", FIRST) is True
    assert proxy.count("PUT") == 2


@pytest.mark.parametrize("mine", [True, False], ids=["mine", "another writer's"])
def test_put_whose_response_was_lost_is_resolved_by_reading(
    s3: S3Server, top: str, mine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try wrote the object, or another writer did meanwhile; in both cases the second try finds one."""
    writer = s3_store(s3, more={"storage.max_retries": "5"})
    real = object_store._create
    tries = 0

    def losing(library: object, key: str, data: bytes) -> bool | None:
        nonlocal tries
        tries += 1
        if tries == 1:
            real(library, key, data if mine else SECOND)
            raise ConnectionResetError("HttpError { kind: Interrupted")
        return real(library, key, data)

    monkeypatch.setattr(object_store, "_create", losing)
    assert writer.put_if_absent(f"{top}/commit", FIRST) is mine
    assert tries == 2
    assert writer.read_all(f"{top}/commit", 100) == (FIRST if mine else SECOND)


def test_store_with_conditional_puts_is_accepted(writer: ObjectStore, top: str) -> None:
    writer.expect_conditional_put(top)
    assert not writer.exists(top), "nothing is left behind"


def test_store_without_conditional_puts_is_refused(gs: ObjectStore) -> None:
    """The second put is answered as if it had been the first."""
    with pytest.raises(OSError, match="ignores If-None-Match"):
        gs.expect_conditional_put("gs://tier/conditional")
    assert not gs.exists("gs://tier/conditional")


def test_store_that_rejects_conditional_puts_is_refused(
    s3: S3Server, top: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = s3_store(s3, more={"storage.max_retries": "7"})

    def refusing(self: ObjectClient, path: str, call: Callable, **more: object) -> object:
        class Library:
            def put(self, *_: object, **__: object) -> None:
                raise NotImplementedError

        try:
            return call(Library())
        except TryFailed as failed:
            raise failed.failure.error(path) from None

    monkeypatch.setattr(ObjectClient, "request", refusing)
    with pytest.raises(OSError, match="If-None-Match"):
        writer.put_if_absent(f"{top}/commit", FIRST)


def test_delete_removes_objects_and_ignores_missing_ones(writer: ObjectStore, top: str) -> None:
    paths = [f"{top}/{number}" for number in range(5)]
    for path in paths:
        writer.put(path, b"x")
    writer.delete(paths[:4])
    assert writer.list(top).names == ["4"]
    writer.delete([*paths, f"{top}/never-was"])
    writer.delete([])
    assert not writer.exists(top)
