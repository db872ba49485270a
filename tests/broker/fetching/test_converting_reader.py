"""Converted reads for clients of Fetch versions 0 to 3: limits, skipped records and errors."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog_broker.api.records import fetch
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.fetching import down_conversion
from kafkalog_broker.fetching.converting_reader import CONVERTED_BYTES, ConvertingReader, _Slot
from kafkalog_broker.fetching.fetch_request import FetchPartition
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_spark.format.layout import ControlType
from tests.broker.fetching.helpers.converted_logs import (
    OLD_CODECS,
    InlineWorkers,
    append,
    data_of,
    legacy_format,
    read,
    records_of,
    some,
    transaction,
)
from tests.broker.old_versions.helpers.old_client import whole
from tests.broker.storage.helpers.stored_logs import NOW, new_log
from tests.log.helpers.batch_builder import V2Record
from tests.log.helpers.legacy_builder import GZIP


def test_converted_fetch_continues_past_many_aborted_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down_conversion, "READ_BYTES", 1000)
    log = new_log(tmp_path)
    for number in range(40):
        transaction(log, ControlType.ABORT, sequence=2 * number)
        if number % 10 == 0:
            log.local.roll(NOW)
    append(log, some(1))
    (found,) = records_of(log, 1)
    assert found.offset == 120
    fetched = read(log, 1)
    assert fetched.size == len(data_of(log, 1)) > 0
    log.discard()


def test_converted_fetch_of_aborted_records_only_is_empty_and_may_wait(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    transaction(log, ControlType.ABORT)
    fetched = read(log, 1)
    assert (fetched.size, fetched.must_respond, fetched.partitions[0].is_cut_off) == (0, False, False)
    log.discard()


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_too_large_message_is_truncated_up_to_version_2(tmp_path: Path, codec: int, version: int) -> None:
    log = new_log(tmp_path)
    large = random.Random(3).randbytes(5_000)  # no codec makes it smaller
    append(log, [V2Record(0, NOW, b"k", large), V2Record(1, NOW, b"k", b"small")], codec=codec)
    for most in (12, 100, 4_000):
        data = data_of(log, version, most=most)
        assert len(data) == most
        assert whole(data) == []
    assert next(one.value for b in whole(data_of(log, version, most=6_000)) for one in b.records) == large
    assert [one.value for b in whole(data_of(log, version, 1, most=200)) for one in b.records] == [b"small"]
    assert data_of(log, version, most=0) == b""
    assert data_of(log, version, most=-1) == b""
    log.discard()


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_first_message_is_complete_from_version_3_on(tmp_path: Path, codec: int) -> None:
    log = new_log(tmp_path)
    append(log, some(2, size=5_000), codec=codec)
    for most in (0, 12, 100):
        (found,) = [one for b in whole(data_of(log, 3, most=most)) for one in b.records]
        assert found.offset == 0
    log.discard()


def test_batch_larger_than_the_limit_is_converted_in_parts(tmp_path: Path) -> None:
    draw = random.Random(5)
    log = new_log(tmp_path)
    append(log, [V2Record(n, NOW, b"k", draw.randbytes(500)) for n in range(100)], codec=GZIP)
    for version in (0, 2, 3):
        offset, rounds = 0, 0
        while offset < 100:
            data = data_of(log, version, offset, 2_000)
            assert 0 < len(data) <= 2_000
            offset = whole(data)[-1].last_offset + 1
            rounds += 1
        assert 25 <= rounds <= 50
    log.discard()


@pytest.mark.parametrize("version", [0, 2, 3])
def test_fetch_of_a_legacy_client_is_limited_to_the_bytes_that_may_be_converted(version: int) -> None:
    assert CONVERTED_BYTES == 4 << 20
    broker: Any = SimpleNamespace(config=SimpleNamespace(fetch_max_bytes=50 << 20))
    entity = SimpleNamespace(max_bytes=1 << 30, min_bytes=1 << 30, max_wait=timedelta(), topics=())
    request: Any = SimpleNamespace(entity=entity, version=version, correlation_id=0)
    translated = fetch._fetch_request(request, broker)
    assert (translated.max_bytes, translated.min_bytes) == (CONVERTED_BYTES, CONVERTED_BYTES)


def test_converted_response_stays_within_max_bytes(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(40):
        append(log, some(1, size=1_000))
    for version in (1, 3):
        fetched = read(log, version, most=1 << 30, max_bytes=10_000)
        assert 8_000 < len(data_of(log, version, most=1 << 30, max_bytes=10_000)) <= 10_000
        assert fetched.partitions[0].is_cut_off
    assert len(whole(data_of(log, 3, most=1 << 30, max_bytes=3_000))) == 2
    log.discard()


def test_converted_fetch_rotates_the_partition_that_is_read_first(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(5):
        append(log, some(1, size=1_000))

    workers: Any = InlineWorkers()

    async def sizes(first: int) -> list[int]:
        partitions = [FetchPartition("t", index, 0, 1 << 20, -1) for index in range(3)]
        fetched = await ConvertingReader(workers).read(
            partitions,
            lambda _: log,
            TimeSlice(),
            legacy=legacy_format(2),
            max_bytes=4_000,
            first=first,
            is_closed=lambda: False,
            remote=None,
        )
        assert [one.request.partition for one in fetched.partitions] == [0, 1, 2]
        return [one.size > 0 for one in fetched.partitions]

    assert [asyncio.run(sizes(first)) for first in (0, 1, 2, -1)] == [
        [True, False, False], [False, True, False], [False, False, True], [False, False, True],
    ]  # fmt: skip
    log.discard()


@pytest.mark.parametrize("size", [50, 5_000])
def test_converted_fetch_returns_records_before_damage_and_then_corrupt_message(tmp_path: Path, size: int) -> None:
    log = new_log(tmp_path)
    append(log, some(1))
    end = log.segments[-1].size
    append(log, some(1, size=size))
    with open(log.segments[-1].log_path, "r+b") as file:
        file.seek(end + 70)
        file.write(b"\xff\xfe")
    assert [one.offset for b in whole(data_of(log, 1)) for one in b.records] == [0]
    fetched = read(log, 1, 1)
    assert fetched.partitions[0].error_code == ErrorCode.corrupt_message
    assert fetched.must_respond
    log.discard()


def test_converted_fetch_of_an_offline_log_is_not_leader_or_follower(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.take_offline(OSError("gone"))
    assert read(log, 0).partitions[0].error_code == ErrorCode.not_leader_or_follower


def test_no_partition_is_read_for_a_closed_connection(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, some(1))
    assert read(log, 1, is_closed=lambda: True).size == 0
    log.discard()


def test_number_of_concurrent_conversions_is_limited(tmp_path: Path) -> None:
    """Each conversion may hold CONVERTED_BYTES, so at most `concurrency` run for any number of clients."""
    log = new_log(tmp_path)
    append(log, some(5))
    assert data_of(log, 2)  # Numba is loaded now
    now = most = 0

    async def run(function: Any, *arguments: Any) -> Any:
        nonlocal now, most
        now += 1
        most = max(now, most)
        await asyncio.sleep(0)
        now -= 1
        return function(*arguments)

    async def all_of_them() -> list[Any]:
        workers: Any = SimpleNamespace(run_computing=run)
        reader = ConvertingReader(workers, concurrency=3)
        no_turns: Any = SimpleNamespace(is_over=False)  # turns would let one request after the other go
        reads = [
            reader.read(
                [FetchPartition("t", 0, 0, 1 << 20, -1)],
                lambda _: log,
                no_turns,
                legacy=legacy_format(2),
                max_bytes=1 << 20,
                first=number,
                is_closed=lambda: False,
                remote=None,
            )
            for number in range(30)
        ]
        return await asyncio.gather(*reads)

    found = asyncio.run(all_of_them())
    assert len({one.size for one in found}) == 1
    assert found[0].size > 0
    assert most == 3
    log.discard()


def test_slot_of_down_conversion_is_free_while_the_request_waits_for_remote_storage() -> None:
    async def run() -> None:
        slots = asyncio.Semaphore(1)
        slot = _Slot(slots)

        async def remote_read() -> str:
            assert not slots.locked()
            return "read"

        async with slot:
            assert slots.locked()
            assert await slot.await_without_slot(remote_read()) == "read"
            assert slots.locked()
        assert not slots.locked()

    asyncio.run(run())


def test_conversion_slot_is_released_once() -> None:
    async def run() -> None:
        slots, may_end = asyncio.Semaphore(1), asyncio.Event()

        async def request() -> None:
            slot = _Slot(slots)
            async with slot:
                await slot.await_without_slot(may_end.wait())

        task = asyncio.create_task(request())
        await asyncio.sleep(0)
        async with slots:  # another request's
            may_end.set()
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task])
        await slots.acquire()
        assert slots.locked()

    asyncio.run(run())
