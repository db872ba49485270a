"""Wrong offset indexes: reads become slower but still return all records."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.log import Log
from tests.broker.storage.helpers.stored_logs import NOW, new_log, reopened, validated
from tests.log.helpers.legacy_builder import LegacyRecord, message_set
from tests.log.helpers.plain_decoder import decode_batches

CONFIG = {"index_interval_bytes": 300, "segment_bytes": 1 << 20}
INDEX = "orders-0/00000000000000000000.index"
LOG = "orders-0/00000000000000000000.log"


def closed_log(directory: Path) -> None:
    """Two segments, the first with ten index entries, closed cleanly."""
    log = new_log(directory, **CONFIG)
    for number in range(30):
        log.append(validated(1 + number % 4, size=60), NOW)
    log.local.roll(NOW)
    log.append(validated(3), NOW)
    log.close()


def offsets_from(log: Log, offset: int, max_bytes: int) -> tuple[int, int]:
    """(offset of the first batch's last record, next offset) of a fetch."""
    result = log.read_range(offset, max_bytes, up_to=log.log_end_offset, at_least_one=True)
    batches = list(decode_batches(b"".join(result.chunks)))
    assert batches[-1].last_offset + 1 == result.next_offset
    return batches[0].last_offset, result.next_offset


@pytest.mark.parametrize("byte", range(8))
def test_fetch_with_a_flipped_index_entry_returns_the_same_records(tmp_path: Path, byte: int) -> None:
    closed_log(tmp_path)
    pristine = (tmp_path / INDEX).read_bytes()
    log = reopened(tmp_path, recovery_point=78, **CONFIG)
    asked = [(offset, most) for offset in range(0, log.log_end_offset, 2) for most in (1, 700, 1 << 20)]
    expected = [offsets_from(log, *one) for one in asked]
    log.close()
    for bit in range(8):
        changed = bytearray(pristine)
        changed[4 * 8 + byte] ^= 1 << bit
        (tmp_path / INDEX).write_bytes(changed)
        log = reopened(tmp_path, recovery_point=78, **CONFIG)
        assert [offsets_from(log, *one) for one in asked] == expected
        log.close()


def test_fetch_of_a_batch_with_too_large_an_offset_is_an_error_at_the_next_batch(tmp_path: Path) -> None:
    closed_log(tmp_path)
    data = bytearray((tmp_path / LOG).read_bytes())
    second = 12 + struct.unpack_from(">i", data, 8)[0]
    data[second + 7] ^= 0x40
    (tmp_path / LOG).write_bytes(data)
    (tmp_path / INDEX).write_bytes(b"")
    log = reopened(tmp_path, recovery_point=78, **CONFIG)
    with pytest.raises(
        BrokerError, match=r"00000000000000000000\.log at byte \d+ .*offsets 3 to 5.*between 67"
    ) as caught:
        log.read_range(70, 1000, up_to=log.log_end_offset, at_least_one=True)
    assert caught.value.code is ErrorCode.kafka_storage_error
    log.discard()


def test_fetch_of_legacy_messages_that_ends_at_an_index_entry_returns_the_next_offset(tmp_path: Path) -> None:
    """A message in format v0 or v1 does not contain its first offset, at which the next fetch would begin."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    records = [LegacyRecord(offset, b"k", bytes(90), NOW) for offset in range(40)]
    (directory / "00000000000000000000.log").write_bytes(message_set(1, records))
    log = reopened(tmp_path, clean=False, **CONFIG)
    assert len(log.segments) == 1
    size = log.segments[0].size // 40
    log.release_files()
    for most in range(size, 30 * size, size // 2):
        result = log.read_range(0, most, up_to=40, at_least_one=True)
        assert (len(b"".join(result.chunks)), result.next_offset) == (most // size * size, most // size)
    log.discard()
