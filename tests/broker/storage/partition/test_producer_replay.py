from __future__ import annotations

import pytest

from kafkalog_broker.storage.partition.producer_replay import read_marker
from kafkalog_broker.storage.partition.producer_state import Marker
from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.log.write.encoded_batch import control_batch
from tests.log.helpers.batch_builder import CONTROL, LEADER_CHANGE, V2Record, batch


def control(key, value=b"\0\0\0\0\0\7"):
    return memoryview(batch(0, [V2Record(0, 1, key, value)], attributes=CONTROL, producer_id=1, producer_epoch=0))


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_marker_contains_control_type_and_coordinator_epoch(kind):
    encoded = control_batch(kind, 3, 1, producer_id=5, producer_epoch=0, coordinator_epoch=300)
    assert read_marker(memoryview(encoded.data)) == Marker(kind, 300)


def test_marker_with_a_longer_key_and_value_of_a_later_version_is_read():
    assert read_marker(control(b"\0\1\0\1more", b"\0\1\0\0\0\7more")) == Marker(ControlType.COMMIT, 7)


def test_control_record_of_another_type_ends_no_transaction():
    assert read_marker(control(bytes((0, 0, 0, LEADER_CHANGE)), b"")) is None


@pytest.mark.parametrize(("key", "value"), [(b"", b""), (b"\0\0\0", b""), (None, None), (b"\0\0\0\1", b"\0\0\0\0\0")])
def test_control_record_that_is_too_short_is_damaged(key, value):
    with pytest.raises(CorruptBatch, match="a control record's"):
        read_marker(control(key, value))


def test_control_record_truncated_at_any_byte_is_damaged():
    whole = control(b"\0\0\0\1")
    for size in range(61, len(whole) - 1):
        with pytest.raises(CorruptBatch):
            read_marker(whole[:size])
