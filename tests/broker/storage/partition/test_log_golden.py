"""Batches of golden partitions, validated and appended again: the files equal those that Kafka wrote.

The tests restore each batch as the producer sent it by removing the fields that the broker set: base offset, leader
epoch and, for LogAppendTime, timestamp type and max timestamp. The clock has the time of the original append.

Accepted differences:
- leader-epoch-checkpoint: Kafka raises the epoch when a broker becomes leader again, at its restart before the copy was
  taken. That is an entry at the log end offset, which only such a restart makes; it is left out of the comparison.
- deleted-prefix: its first segment and their snapshots went with DeleteRecords, which is done here too.
- partition.metadata holds a topic id of its own.
Everything else is compared byte for byte: .log, .index, .timeindex, .txnindex. Of a .snapshot the rows are, in any
order: Kafka writes them in that of a java.util.HashMap.
"""

from __future__ import annotations

import struct

import pytest

from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.partition.producer_replay import read_marker
from kafkalog_spark.format import layout
from kafkalog_spark.format.batch_header import parse_header
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, read_leader_epochs
from kafkalog_spark.format.producer_snapshot import read_producer_snapshot
from kafkalog_spark.log.read.aborted_transactions import aborted_transactions
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.tiered.remote_segment import TopicIdPartition
from tests.broker.storage.helpers.stored_logs import TOPIC_ID, create_log, log_config
from tests.golden_data import KAFKA_4_3, golden_logs
from tests.log.helpers.batch_builder import sealed

COMPACTED = ("compacted",)  # rewritten by the cleaner, not by an append
DENSE = ("codec-", "java-", "out-of-order", "transactions")  # made with index.interval.bytes=512
CONFIG = {
    "segments": {"segment_bytes": 64 << 10},
    "deleted-prefix": {"segment_bytes": 64 << 10},
    "logappend": {"message_timestamp_type": "LogAppendTime"},
    "large": {"max_message_bytes": 16 << 20},
}
LOGS = [log for log in golden_logs(KAFKA_4_3, crashed=False) if log.topic not in COMPACTED]
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def batches(log):
    for path in log.segments():
        data = path.read_bytes()
        at = 0
        while at < len(data):
            header = parse_header(data, at, at)
            yield header, data[at : header.end]
            at = header.end


def as_sent(header, batch):
    sent = bytearray(batch)
    struct.pack_into(">q", sent, layout.OFFSET_AT, 0)
    struct.pack_into(">i", sent, layout.LEADER_EPOCH_AT, -1)
    if header.attributes & layout.ATTRIBUTE_LOG_APPEND_TIME:
        struct.pack_into(">h", sent, layout.ATTRIBUTES_AT, header.attributes & ~layout.ATTRIBUTE_LOG_APPEND_TIME)
        struct.pack_into(">q", sent, layout.MAX_TIMESTAMP_AT, 0)
        return sealed(bytes(sent))
    return bytes(sent)


def replayed(golden, directory, *, close=True):
    """A log in `directory` with the golden one's batches, closed cleanly."""
    dense = golden.topic.startswith(DENSE)
    config = log_config(  # type: ignore[arg-type]
        message_timestamp_after_max_ms=2**62,
        index_interval_bytes=512 if dense else 4096,
        **CONFIG.get(golden.topic, {}),
    )
    start = int(golden.segments()[0].stem)
    log = create_log(
        TopicIdPartition(golden.topic, TOPIC_ID, golden.partition), config, directory / golden.name, 0,
        log_start_offset=start,
    )  # fmt: skip
    for header, batch in batches(golden):
        now = header.max_timestamp
        if header.is_control:
            marker = read_marker(memoryview(batch))
            assert marker is not None
            info = log.append_control(
                marker.control_type,
                header.producer_id,
                header.producer_epoch,
                marker.coordinator_epoch,
                now,
            )
        else:
            info = log.append(validate_batch(as_sent(header, batch), config, now), now)
        assert (info.base_offset, info.last_offset) == (header.base_offset, header.last_offset)
    log.delete_records(golden.log_start_offset)
    if close:
        log.close()
    return log


def files(directory):
    return {
        path.name: sorted(read_producer_snapshot(path)) if path.suffix == ".snapshot" else path.read_bytes()
        for path in directory.iterdir()
        if path.suffix in SUFFIXES
    }


@pytest.mark.parametrize("golden", LOGS, ids=str)
def test_log_with_replayed_kafka_batches_has_the_same_files(golden, tmp_path):
    log = replayed(golden, tmp_path)
    expected, found = files(golden.directory), files(log.directory)
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []
    epochs = read_leader_epochs(golden.directory / LEADER_EPOCH_CHECKPOINT)
    written = [entry for entry in epochs if entry.start_offset < golden.high_watermark]
    assert read_leader_epochs(log.directory / LEADER_EPOCH_CHECKPOINT) == written


def test_leader_epoch_checkpoint_equals_that_of_kafka_without_its_restart(tmp_path):
    (golden,) = golden_logs(KAFKA_4_3, "codec-none", crashed=False)
    log = replayed(golden, tmp_path)
    kafkas = (golden.directory / LEADER_EPOCH_CHECKPOINT).read_bytes()
    restart = f"2 {golden.high_watermark}\n".encode()
    assert kafkas.endswith(restart)
    assert (log.directory / LEADER_EPOCH_CHECKPOINT).read_bytes() == kafkas.removesuffix(restart).replace(
        b"0\n2\n", b"0\n1\n", 1
    )


@pytest.mark.parametrize("golden", golden_logs(KAFKA_4_3, "transactions", crashed=False), ids=str)
def test_aborted_transactions_at_every_offset_equal_those_of_the_offline_reader(golden, tmp_path):
    log = replayed(golden, tmp_path, close=False)
    oracle = PartitionLog(PartitionLocation(golden.topic, golden.partition, str(golden.directory)))
    assert log.last_stable_offset == last_stable_offset(oracle)
    step = 7
    for start in range(golden.log_start_offset, golden.high_watermark, step):
        state = aborted_transactions(oracle, start, start + step)
        told = log.aborted_transactions(start, start + step)
        for aborted in state.aborted:
            # the reader began at `start`, so it takes the first offset it saw for the transaction's
            assert any(pid == aborted.producer_id and first <= aborted.first_offset for pid, first, *_ in told)
    log.discard()
