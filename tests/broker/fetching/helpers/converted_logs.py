"""Logs in all formats, and reads of them as by clients of Fetch versions 0 to 3."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from kafkalog_broker.fetching.converting_reader import ConvertingReader
from kafkalog_broker.fetching.fetch_read import Fetched
from kafkalog_broker.fetching.fetch_request import FetchPartition, LegacyFormat
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.recovery.log_loader import LoadRequest, load_log
from kafkalog_spark.format.layout import ControlType
from tests.broker.old_versions.helpers.old_client import whole
from tests.broker.storage.helpers.stored_logs import IDENTITY, NOW, log_config
from tests.log.helpers.batch_builder import TRANSACTIONAL, V2Record, batch
from tests.log.helpers.legacy_builder import GZIP, LZ4, NONE, SNAPPY, LegacyRecord
from tests.log.helpers.plain_decoder import Record

OLD_CODECS = (NONE, GZIP, SNAPPY, LZ4)
PRODUCER, EPOCH = 9, 0


def append(log: Log, records: list[V2Record], **fields: Any) -> None:
    log.append(validate_batch(batch(0, records, leader_epoch=-1, **fields), log.config, NOW), NOW)


def some(count: int = 3, size: int = 5, start: int = 0) -> list[V2Record]:
    headers = ((b"h", b"x"),)
    return [V2Record(n, NOW + n, b"k%d" % (start + n), bytes([97 + n % 26]) * size, headers) for n in range(count)]


def log_of(directory: Path, *files: tuple[int, bytes]) -> Log:
    """Return a log with these bytes as its segments, like one of a broker before 0.11."""
    directory.mkdir()
    for base_offset, data in files:
        (directory / f"{base_offset:020}.log").write_bytes(data)
    return Log(IDENTITY, log_config(), load_log(LoadRequest(directory=directory, clean=False)), NOW)


class InlineWorkers:
    """Workers that run a function in the calling thread."""

    async def run_computing(self, function: Any, *arguments: Any) -> Any:
        return function(*arguments)


def legacy_format(version: int) -> LegacyFormat:
    """Return the record format that a client of this Fetch version can read."""
    return LegacyFormat(magic=0 if version <= 1 else 1, hard_limits=version <= 2)


def read(log: Log, version: int, offset: int = 0, most: int = 1 << 20, **changes: Any) -> Fetched:
    """Read one partition once."""
    workers: Any = InlineWorkers()

    async def pass_() -> Fetched:
        arguments: dict[str, Any] = {
            "max_bytes": 1 << 30, "first": 0, "is_closed": lambda: False, "remote": None, **changes
        }  # fmt: skip
        partitions = [FetchPartition("t", 0, offset, most, -1)]
        return await ConvertingReader(workers).read(
            partitions, lambda _: log, TimeSlice(), legacy=legacy_format(version), **arguments
        )

    return asyncio.run(pass_())


def data_of(log: Log, version: int, offset: int = 0, most: int = 1 << 20, **changes: Any) -> bytes:
    (one,) = read(log, version, offset, most, **changes).partitions
    assert one.error_code == 0
    pieces: Any = one.records
    return b"".join(bytes(piece) for piece in pieces)


def records_of(log: Log, version: int, offset: int = 0, most: int = 1 << 20) -> list[Record]:
    """Return the records from `offset` to the log end, fetch by fetch, like a consumer."""
    found: list[Record] = []
    while offset < log.high_watermark:
        records = [one for b in whole(data_of(log, version, offset, most)) for one in b.records if one.offset >= offset]
        if not records:
            return found
        found += records
        offset = records[-1].offset + 1
    return found


RECORDS = st.lists(
    st.builds(
        LegacyRecord,
        offset=st.just(0),
        key=st.none() | st.binary(max_size=40),
        value=st.none() | st.binary(max_size=400),
        timestamp=st.integers(0, NOW),
    ),
    min_size=1,
    max_size=20,
)


def transaction(log: Log, end: ControlType, *, count: int = 2, sequence: int = 0, producer: int = PRODUCER) -> None:
    made = batch(
        0, some(count, start=log.log_end_offset), leader_epoch=-1, attributes=TRANSACTIONAL, producer_id=producer,
        producer_epoch=EPOCH, base_sequence=sequence,
    )  # fmt: skip
    log.append(validate_batch(made, log.config, NOW), NOW)
    log.append_control(end, producer, EPOCH, 0, NOW)


OLD = [LegacyRecord(n, b"k%d" % n, b"v" * 30, NOW + n) for n in range(6)]
