"""Acquiring records for a share fetch: how much of the log is read, and errors of reading."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.share_fetch_messages import ShareFetchPartition
from kafkalog_broker.share.share_fetch import ReadableRange, ShareFetch, ShareFetchParams
from kafkalog_broker.storage.partition.file_handles import FileSlice
from tests.broker.share.helpers.active_partition import KEY, ActivePartition

HEADER = struct.Struct(">qiibIhiqqqhii")
BATCH = HEADER.size + 9


class Handle:
    """A file of batches with one record each, which counts the bytes read; BrokerError if `broken`."""

    def __init__(self, batches: int) -> None:
        headers = (HEADER.pack(at, BATCH - 12, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1) for at in range(batches))
        self.data = b"".join(header + bytes(9) for header in headers)
        self.bytes_read = 0
        self.broken = False

    def read(self, position: int, size: int) -> bytes:
        if self.broken:
            raise BrokerError(ErrorCode.corrupt_message, "it is damaged")
        found = self.data[position : position + size]
        self.bytes_read += len(found)
        return found


def fetch_from(one: ActivePartition, handle: Handle, max_records: int) -> ShareFetchPartition:
    found = FileSlice(cast(Any, handle), 0, len(handle.data))
    asked = ShareFetchParams("m", max_records, 500, 1, 1 << 20, 0)
    fetch = ShareFetch(cast(Any, SimpleNamespace(now_ms=lambda: 0)), [KEY], asked)
    return fetch.acquire(ReadableRange(one.active, 0, 1 << 40, found, 1 << 40), max_records, 1 << 20)


def test_acquire_reads_no_more_headers_than_records_may_be_in_flight() -> None:
    few, many = Handle(20_000), Handle(20_000)
    assert fetch_from(ActivePartition(), few, 100).acquired_records == [(0, 99, 1)]
    assert fetch_from(ActivePartition(), many, 2**31 - 1).acquired_records == [(0, 99, 1)]
    assert many.bytes_read == few.bytes_read < len(many.data) // 10


def test_unreadable_log_is_an_error_of_its_partition() -> None:
    handle = Handle(10)
    handle.broken = True
    fetched = fetch_from(ActivePartition(), handle, 10)
    assert fetched.error_code is ErrorCode.kafka_storage_error
    assert fetched.error_message == "orders-0 could not be read: it is damaged"
