from __future__ import annotations

import pytest

from kafkalog_spark.errors import CorruptBatch, UnsupportedFormat
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.log.write.encoded_batch import EncodedBatch, control_batch, split_batches
from tests.golden_data import GoldenLog, golden_logs
from tests.log.helpers.plain_decoder import decode_log


@pytest.mark.parametrize("log", golden_logs(), ids=str)
def test_golden_batches_have_the_header_fields_of_the_oracle(log: GoldenLog) -> None:
    for path in log.segments():
        data = path.read_bytes()
        found = list(split_batches(data))
        assert b"".join(batch.data for batch in found) == data
        oracle = decode_log(path)
        assert [(b.header.last_offset, b.header.max_timestamp, b.header.leader_epoch) for b in found] == [
            (b.last_offset, b.max_timestamp, b.leader_epoch) for b in oracle
        ]
        assert [(b.header.base_offset, b.header.record_count) for b in found if b.header.record_count >= 0] == [
            (b.base_offset, len(b.records)) for b in oracle if b.magic == 2 or b.codec == 0
        ]


@pytest.mark.parametrize("log", golden_logs(topic="transactions", crashed=False), ids=str)
def test_transaction_marker_equals_kafkas_bytes(log: GoldenLog) -> None:
    seen = set()
    for path in log.segments():
        data = path.read_bytes()
        for batch in decode_log(path):
            if batch.is_control:
                (record,) = batch.records
                assert record.key is not None
                assert record.value is not None
                kind = ControlType(int.from_bytes(record.key[2:4], "big"))
                ours = control_batch(
                    kind, batch.base_offset, record.timestamp,
                    producer_id=batch.producer_id, producer_epoch=batch.producer_epoch,
                    coordinator_epoch=int.from_bytes(record.value[2:6], "big"), leader_epoch=batch.leader_epoch,
                )  # fmt: skip
                assert ours.data == data[batch.position : batch.position + batch.size]
                assert ours == EncodedBatch.of(ours.data) == next(split_batches(ours.data))
                seen.add(kind)
    assert seen == {ControlType.ABORT, ControlType.COMMIT}


def test_only_commit_and_abort_are_transaction_markers() -> None:
    with pytest.raises(ValueError, match="ABORT or COMMIT"):
        control_batch(ControlType.LEADER_CHANGE, 0, 0, producer_id=1, producer_epoch=0, coordinator_epoch=0)


def test_batches_cut_short_are_refused_with_their_position() -> None:
    (log,) = golden_logs(topic="codec-lz4", crashed=False)
    first, second = decode_log(log.segments()[0])[:2]
    data = log.segments()[0].read_bytes()[: first.size + second.size]
    for cut in [*range(1, 70), first.size - 1, first.size + 1, first.size + 16, first.size + 61, len(data) - 1]:
        with pytest.raises(CorruptBatch) as caught:
            list(split_batches(data[:cut]))
        assert caught.value.position == (0 if cut < first.size else first.size)


def test_unknown_magic_is_refused() -> None:
    with pytest.raises(UnsupportedFormat):
        list(split_batches(bytes(7) + b"\x01" + (100).to_bytes(4, "big") + bytes(4) + b"\x03" + bytes(100)))
