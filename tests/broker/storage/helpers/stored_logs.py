"""Configurations, producer batches and open logs for tests of one partition."""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.partition.loaded_log import create_log_files
from kafkalog_broker.storage.partition.log import AppendInfo, Log
from kafkalog_broker.storage.recovery.log_loader import LoadRequest, load_log
from kafkalog_spark.log.tiered.remote_segment import TopicIdPartition
from kafkalog_spark.log.write.encoded_batch import EncodedBatch, build_batch
from tests.log.helpers.batch_builder import V2Record, batch

NOW = 1_700_000_000_000
HOUR = 3_600_000
TOPIC_ID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
IDENTITY = TopicIdPartition("orders", TOPIC_ID, 0)


@functools.cache
def _defaults() -> LogConfig:
    return LogConfig.of(BrokerConfig.from_properties({}))


def log_config(**changes) -> LogConfig:
    """Kafka's defaults with `changes`; nothing checks them, so that segments may be tiny."""
    return dataclasses.replace(_defaults(), **changes)


def sent(how_many=1, /, *, size=10, timestamp=NOW, key=b"k", **fields) -> bytes:
    """A batch of `how_many` records as a producer sends it, timestamps 1 ms apart."""
    records = [V2Record(i, timestamp + i, key, bytes([i % 251]) * size) for i in range(how_many)]
    return batch(0, records, **{"leader_epoch": -1, **fields})


def validated(how_many=1, /, **fields) -> EncodedBatch:
    return validate_batch(sent(how_many, **fields), log_config(message_timestamp_after_max_ms=2**62), NOW)


def create_log(
    identity: TopicIdPartition,
    config: LogConfig,
    directory: Path,
    now_ms: int,
    *,
    log_start_offset: int = 0,
    leader_epoch: int = 0,
    **options: Any,
) -> Log:
    """A new, empty log in `directory`, which is made."""
    directory.mkdir(parents=True, exist_ok=True)
    loaded = create_log_files(
        directory, identity.topic_id, log_start_offset=log_start_offset, leader_epoch=leader_epoch
    )
    return Log(identity, config, loaded, now_ms, **options)


def new_log(directory: Path, now_ms: int = NOW, *, options=None, **config) -> Log:
    return create_log(IDENTITY, log_config(**config), directory / "orders-0", now_ms, **(options or {}))


def reopened(directory: Path, now_ms: int = NOW, *, clean=True, recovery_point=0, log_start_offset=0, **config) -> Log:
    """Load the log in this directory."""
    made = log_config(**config)
    request = LoadRequest(
        directory=directory / "orders-0",
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        index_interval_bytes=made.index_interval_bytes,
        max_index_size=made.segment_index_bytes,
    )
    return Log(IDENTITY, made, load_log(request), now_ms)


def read_all(log: Log, offset=0, max_bytes=1 << 20, up_to=None) -> bytes:
    """Everything from `offset` on, fetch by fetch."""
    data = b""
    until = log.log_end_offset if up_to is None else up_to
    while offset < until:
        result = log.read_range(offset, max_bytes, up_to=until, at_least_one=True)
        assert result.chunks
        assert result.next_offset > offset
        data += b"".join(result.chunks)
        offset = result.next_offset
    return data


def log_bytes(log: Log) -> bytes:
    """The .log files of the directory, one behind the other."""
    return b"".join(path.read_bytes() for path in sorted(log.directory.glob("*.log")))


def bases(log):
    """Base offsets of its segments."""
    return [segment.base_offset for segment in log.segments]


def producer(sequence, how_many=1, *, epoch=0, pid=7, **fields):
    """A batch of an idempotent producer."""
    return validated(how_many, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, **fields)


def code_of(call, *arguments, **named):
    """Return the code of the BrokerError that the call raises."""
    with pytest.raises(BrokerError) as caught:
        call(*arguments, **named)
    return caught.value.code


def three_segments(tmp_path, **config):
    """A log of ten records each, with NOW, an hour later, and another one later."""
    log = new_log(tmp_path, **config)
    for i in range(3):
        log.append(validated(10, timestamp=NOW + i * HOUR), NOW)
        if i < 2:
            log.local.roll(NOW)
    return log


def sizes(log):
    """Of its .log files, in bytes."""
    return [(log.directory / f"{base:020d}.log").stat().st_size for base in bases(log)]


def contents(directory: Path) -> dict[str, bytes]:
    """Its files by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def append_records(log: Log, records: Sequence[tuple[bytes | None, bytes | None]], now_ms: int) -> AppendInfo:
    """Append (key, value) records as one batch of the broker's own."""
    return log.append_batch(build_batch(records, now_ms).data, now_ms)
