"""Follower logs: appends of fetched batches, their high watermark, and truncation after divergence."""

from __future__ import annotations

import random
import struct

import pytest

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.storage.append.fetched_batches import parse_fetched_batches
from kafkalog_broker.storage.partition.follower import Follower
from kafkalog_broker.storage.partition.leader_epoch_lookup import end_offset_for_epoch
from kafkalog_spark.errors import CorruptBatch, UnexpectedAppendOffset, UnsupportedFormat
from kafkalog_spark.format import layout
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, read_leader_epochs
from kafkalog_spark.format.layout import ControlType, HeaderColumn
from kafkalog_spark.log.tiered.remote_segment import TopicIdPartition
from kafkalog_spark.log.write.encoded_batch import control_batch
from tests.broker.storage.helpers.followed_logs import (
    SMALL,
    Leader,
    assert_lookups_agree,
    assert_same,
    copy,
    new_follower,
)
from tests.broker.storage.helpers.loaded_logs import records
from tests.broker.storage.helpers.stored_logs import (
    NOW,
    TOPIC_ID,
    bases,
    code_of,
    create_log,
    log_bytes,
    log_config,
    reopened,
    validated,
)
from tests.golden_data import KAFKA_4_3, golden_logs
from tests.log.helpers.batch_builder import sealed

DENSE = ("codec-", "java-", "out-of-order", "transactions")  # made with index.interval.bytes=512
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
LOGS = golden_logs(KAFKA_4_3, crashed=False)


def window(*batches):
    return parse_fetched_batches(memoryview(b"".join(batches)))


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in SUFFIXES}


@pytest.mark.parametrize("golden", LOGS, ids=str)
def test_follower_of_a_kafka_log_writes_the_same_files(golden, tmp_path):
    """Compare .log and the three index files byte for byte, with fetch responses of several sizes and offset gaps."""
    config = log_config(index_interval_bytes=512 if golden.topic.startswith(DENSE) else 4096)
    start = int(golden.segments()[0].stem)
    log = create_log(
        TopicIdPartition(golden.topic, TOPIC_ID, golden.partition), config, tmp_path / golden.name, 0,
        log_start_offset=start,
    )  # fmt: skip
    follower = Follower(log)
    chance = random.Random(golden.topic)
    for path in golden.segments():
        data = path.read_bytes()
        if log.log_end_offset < int(path.stem):  # compaction left a gap
            follower.append(window(data), 0)
            data = b""
        if int(path.stem) > start and data:
            log.local.roll(0)
        while data:
            found = parse_fetched_batches(memoryview(data)[: chance.choice((400, 5000, 100_000, 10**8))])
            if not len(found.table):
                found = parse_fetched_batches(memoryview(data))
            follower.append(found, 0)
            data = data[int(found.table[-1, HeaderColumn.POSITION] + found.table[-1, HeaderColumn.SIZE]) :]
    follower.update_high_watermark(golden.high_watermark)
    follower.update_log_start_offset(golden.log_start_offset)
    log.close()
    expected = files(golden.directory)
    if golden.topic == "compacted":
        whole = b"".join(path.read_bytes() for path in golden.segments())
        assert log_bytes(log) == whole
    else:
        found_files = files(log.directory)
        assert sorted(found_files) == sorted(expected)
        assert [name for name in expected if found_files[name] != expected[name]] == []
    epochs = read_leader_epochs(golden.directory / LEADER_EPOCH_CHECKPOINT)
    written = [(entry.epoch, entry.start_offset) for entry in epochs if entry.start_offset < golden.high_watermark]
    mine = read_leader_epochs(log.directory / LEADER_EPOCH_CHECKPOINT)
    assert [(entry.epoch, entry.start_offset) for entry in mine] == written


@pytest.mark.parametrize("seed", range(8))
def test_follower_of_random_history_equals_its_leader(seed, tmp_path):
    chance = random.Random(seed)
    leader = Leader(tmp_path / "leader", chance)
    log, follower = new_follower(tmp_path / "follower", segment_bytes=chance.choice((700, 1500, 10**6)))
    for _ in range(6):
        leader.write(20)
        copy(leader.log, follower, log, max_bytes=chance.choice((1, 300, 2000, 10**6)))
        assert_same(log, leader.log)
        assert log.last_stable_offset == leader.log.last_stable_offset
        assert sorted(log.producer_state.entries()) == sorted(leader.log.producer_state.entries())
        assert log.high_watermark == log.log_end_offset
        assert_lookups_agree(log, leader.log)
    log.close()
    again = reopened(tmp_path / "follower", **SMALL)
    assert_same(again, leader.log)
    assert sorted(again.producer_state.entries()) == sorted(leader.log.producer_state.entries())


def test_follower_keeps_offset_gaps_left_by_compaction(tmp_path):
    log, follower = new_follower(tmp_path)
    batches = [records(3, 2, leader_epoch=0), records(20, leader_epoch=0), records(900, 3, leader_epoch=2)]
    follower.append(window(*batches), NOW)
    assert log_bytes(log) == b"".join(batches)
    assert log.log_end_offset == 903
    assert follower.last_epoch == 2
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (2, 900)]


def test_batch_below_log_end_offset_is_refused_and_changes_nothing(tmp_path):
    log, follower = new_follower(tmp_path)
    follower.append(window(records(0, 10, leader_epoch=0)), NOW)
    before = log_bytes(log)
    for offset, count in ((0, 10), (5, 10), (9, 1)):
        with pytest.raises(
            UnexpectedAppendOffset, match=r"orders-0 .*expected offset 10 or above.*fetch from"
        ) as caught:
            follower.append(window(records(offset, count, leader_epoch=0)), NOW)
        assert caught.value.offset == offset
    assert (log.log_end_offset, log_bytes(log)) == (10, before)
    follower.append(window(records(10, leader_epoch=0)), NOW)


def test_follower_accepts_a_first_batch_that_begins_below_the_log_start_offset(tmp_path):
    """After DeleteRecords up to the middle of a batch, the leader still sends that batch whole."""
    log, follower = new_follower(tmp_path)
    follower.truncate_fully_and_start_at(15)
    gone = follower.append(window(records(10, 10, leader_epoch=4), records(20, leader_epoch=4)), NOW)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (15, 21, [10])
    assert "00000000000000000015.log.deleted" in {path.name for path in gone}, "the caller is to remove them"
    assert log_bytes(log) == records(10, 10, leader_epoch=4) + records(20, leader_epoch=4)


def test_follower_ignores_a_truncated_last_batch_of_a_fetch_response():
    whole, next_one = records(0, 3), records(3, 3)
    for left in range(len(next_one)):
        assert len(window(whole, next_one[:left]).table) == 1
    assert len(window().table) == 0
    many = b"".join(records(i, size=300) for i in range(400))
    assert len(window(many, next_one[:20]).table) == 400  # by the kernel


@pytest.mark.parametrize("count", [3, 400], ids=["plain", "kernel"])
@pytest.mark.parametrize("size", [300, 2000])
def test_fetched_batches_with_damage_are_refused_with_the_position(count, size):
    batches = [records(i, size=size) for i in range(count)]
    good = b"".join(batches)
    at = len(b"".join(batches[:-1]))
    flipped = bytearray(good)
    flipped[-1] ^= 1
    with pytest.raises(CorruptBatch, match="CRC-32C does not match") as caught:
        window(flipped)
    assert caught.value.position == at
    with pytest.raises(CorruptBatch, match="follows offset"):
        window(good, batches[0])
    unknown = bytearray(good)
    unknown[at + layout.MAGIC_AT] = 3
    with pytest.raises(UnsupportedFormat):
        window(unknown)
    short = bytearray(good)
    struct.pack_into(">i", short, at + layout.LENGTH_AT, 3)
    with pytest.raises(CorruptBatch, match="batch length"):
        window(short)


def test_follower_refuses_an_unreadable_transaction_marker(tmp_path):
    log, follower = new_follower(tmp_path)
    marker = control_batch(ControlType.ABORT, 0, NOW, producer_id=5, producer_epoch=0, coordinator_epoch=1).data
    damaged = bytearray(marker)
    damaged[layout.RECORDS_AT + 4] = 2  # a key of one byte
    with pytest.raises(CorruptBatch, match="orders-0"):
        follower.append(window(sealed(bytes(damaged))), NOW)
    assert log.log_end_offset == 0
    follower.append(window(marker), NOW)


def test_append_to_a_follower_is_refused(tmp_path):
    log, follower = new_follower(tmp_path)
    follower.append(window(records(0, 10, leader_epoch=3)), NOW)
    assert code_of(log.append, validated(), NOW) == ErrorCode.not_leader_or_follower
    assert code_of(log.append_control, ControlType.ABORT, 1, 0, 0, NOW) == ErrorCode.not_leader_or_follower
    assert log.log_end_offset == 10


def test_follower_high_watermark_is_the_leaders_bounded_by_the_log_end(tmp_path):
    log, follower = new_follower(tmp_path, flush_messages=1)
    follower.append(window(records(0, 10)), NOW)
    assert log.high_watermark == 0
    log.flush()
    log.update_config(log_config(**SMALL))
    assert log.high_watermark == 0  # neither flushing nor flush.messages moves it
    moves = []
    log.subscribe(lambda: moves.append(log.high_watermark))
    follower.update_high_watermark(7)
    follower.update_high_watermark(5)
    follower.update_high_watermark(500)
    assert moves == [7, 10]
    follower.update_log_start_offset(500)
    assert log.log_start_offset == 10  # so far, and no further than the high watermark


def test_follower_transaction_is_open_until_its_marker_is_below_the_high_watermark(tmp_path):
    log, follower = new_follower(tmp_path)
    fields = {"attributes": layout.ATTRIBUTE_TRANSACTIONAL, "producer_epoch": 0, "producer_id": 5, "base_sequence": 0}
    marker = control_batch(ControlType.ABORT, 4, NOW, producer_id=5, producer_epoch=0, coordinator_epoch=1).data
    follower.append(window(records(0, 2), records(2, 2, **fields), marker), NOW)
    follower.update_high_watermark(4)
    assert log.last_stable_offset == 2
    follower.update_high_watermark(5)
    assert log.last_stable_offset == 5
    assert [one[:2] for one in log.aborted_transactions(0, 5)] == [(5, 2)]


EPOCHS = [(1, 0), (3, 10), (5, 20)]  # epoch 5 ends at 30


@pytest.mark.parametrize(
    ("answer", "end", "why"),
    [
        ((5, 25), 25, "the leader's epoch 5 ended before mine"),
        ((5, 90), 30, "it has more than I: nothing to cut"),
        ((4, 15), 20, "the leader knows an epoch that I lack: I cut my later ones, and ask again"),
        ((3, 15), 15, "both know epoch 3"),
        ((3, 25), 20, "mine ended earlier"),
        ((2, 7), 10, "what I wrote up to epoch 2 ends at 10; ask again with epoch 1"),
        ((1, 4), 4, "both know epoch 1"),
        ((0, 0), 0, "the leader's last common epoch is before my first"),
        ((7, 22), 22, "above all of mine"),
        ((-1, 12), 12, "a leader before 2.0 names no epoch"),
        ((-1, -1), 30, "it knows nothing: nothing to go by"),
    ],
)
def test_truncation_offset_of_diverged_logs(answer, end, why, tmp_path):
    """AbstractFetcherThread.getOffsetTruncationState (KIP-101, KIP-279)."""
    _, follower = new_follower(tmp_path)
    for epoch, offset in EPOCHS:
        follower.append(window(records(offset, 10, leader_epoch=epoch)), NOW)
    assert follower.truncation_offset(*answer) == end, why


@pytest.mark.parametrize("seed", range(6))
def test_follower_after_an_unclean_election_equals_the_new_leader(seed, tmp_path):
    """Two logs share a prefix and then have different epochs; the follower queries OffsetForLeaderEpoch."""
    chance = random.Random(seed)
    old = Leader(tmp_path / "old", chance)
    old.write(40)
    new = Leader(tmp_path / "new", random.Random(seed + 100), epoch=old.epoch + 20)
    follows = Follower(new.log)
    copy(old.log, follows, new.log)
    new.log.is_follower = False  # elected, with less than the old one has by then
    old.write(chance.randint(1, 30))
    for _ in range(2):  # and the old one comes back once more before it is gone
        old.epoch += 1
        old.log.epochs.assign(old.epoch, old.log.log_end_offset)
        old.write(chance.randint(1, 10))
    new.log.epochs.assign(new.epoch, new.log.log_end_offset)
    new.write(30)
    log, follower = new_follower(tmp_path / "follower")
    copy(old.log, follower, log)
    rounds = 0
    while True:
        epoch = follower.last_epoch
        found, end = end_offset_for_epoch(new.log, epoch)
        if found == epoch and end >= log.log_end_offset:
            break
        follower.truncate_to(follower.truncation_offset(found, end))
        rounds += 1
        assert rounds < 20
    copy(new.log, follower, log)
    assert log_bytes(log) == log_bytes(new.log)
    assert log.epochs.entries == new.log.epochs.entries
