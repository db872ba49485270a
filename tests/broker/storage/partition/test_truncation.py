"""Truncation: the log equals one that never had the removed records; a kill at any step leaves a prefix of it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from kafkalog_broker.storage.append.fetched_batches import parse_fetched_batches
from kafkalog_broker.storage.partition.follower import Follower
from kafkalog_broker.storage.partition.producer_replay import replay_segments
from kafkalog_spark.log.check.finding import Findings
from kafkalog_spark.log.check.partition_check import PartitionCheck
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from tests.broker.storage.helpers.cleaned_logs import append
from tests.broker.storage.helpers.followed_logs import (
    SMALL,
    Leader,
    assert_lookups_agree,
    assert_same,
    before_each_change,
    copy,
    new_follower,
)
from tests.broker.storage.helpers.loaded_logs import records
from tests.broker.storage.helpers.stored_logs import NOW, bases, log_bytes, new_log, read_all, reopened
from tests.log.helpers import plain_decoder


def starts(leader):
    """Base offsets of all its batches."""
    return [found.base_offset for found in plain_decoder.decode_batches(read_all(leader))]


def never_longer(leader, directory, end):
    """A follower that has only ever received the batches below `end`."""
    log, follower = new_follower(directory)
    copy(leader, follower, log, up_to=end)
    return log


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5, 20))])
def test_truncated_log_equals_a_log_that_never_had_the_removed_records(seed, tmp_path):
    chance = random.Random(seed)
    leader = Leader(tmp_path / "leader", chance)
    leader.write(80)
    log, follower = new_follower(tmp_path / "follower")
    copy(leader.log, follower, log)
    for number in range(6):
        offset = chance.randrange(leader.log.log_end_offset + 1)
        end = max(start for start in [*starts(leader.log), leader.log.log_end_offset] if start <= offset)
        end = min(end, log.log_end_offset)
        if chance.random() < 0.3:
            log.flush()
        remove(follower.truncate_to(offset))
        assert log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        assert_same(log, leader.log, end)
        other = never_longer(leader.log, tmp_path / f"other {number}", end)
        assert sorted(log.producer_state.entries()) == sorted(other.producer_state.entries())
        assert log.last_stable_offset == other.last_stable_offset
        assert_lookups_agree(log, other)
        assert [offset for offset in follower_snapshots(log) if offset > end] == []
        if chance.random() < 0.5:
            log.close()
            log = reopened(tmp_path / "follower", **SMALL)
            follower = Follower(log)
            assert_same(log, leader.log, end)
            assert sorted(log.producer_state.entries()) == sorted(other.producer_state.entries())
        copy(leader.log, follower, log, max_bytes=chance.choice((1, 500, 10**6)), up_to=chance.choice((None, end)))
    copy(leader.log, follower, log)
    assert_same(log, leader.log)
    log.close()
    assert findings(log) == []


def test_truncation_restores_producers_from_the_newest_snapshot_even_if_it_is_empty(tmp_path, monkeypatch):
    leader = new_log(tmp_path / "leader", **SMALL)
    log, follower = new_follower(tmp_path / "follower")
    for _ in range(60):
        append(leader, (b"key", bytes(50)))
    copy(leader, follower, log)
    log.flush()
    replays = Mock(wraps=replay_segments)
    monkeypatch.setattr("kafkalog_broker.storage.partition.follower.replay_segments", replays)
    point = follower.plan_truncation(59)
    newest = log.segments[-1].base_offset
    assert (point.end_offset, newest > 0) == (59, True)
    assert [call.args[-1] for call in replays.call_args_list] == [newest]


def remove(paths):
    for path in paths:
        path.unlink()


def follower_snapshots(log):
    return [int(path.stem) for path in log.directory.glob("*.snapshot")]


def findings(log):
    """Return the findings of kafkalog-check."""
    found = Findings()
    PartitionCheck(PartitionLog(PartitionLocation("orders", 0, str(log.directory))), found, True, lambda _: None).run()
    return found.kept


def test_truncation_within_a_batch_removes_the_whole_batch(tmp_path):
    log, follower = new_follower(tmp_path)
    batches = [records(0, 10), records(10, 10), records(40, 5)]
    follower.append(parse_fetched_batches(memoryview(b"".join(batches))), NOW)
    follower.truncate_to(42)
    assert log.log_end_offset == 40
    follower.truncate_to(30)  # in a gap: nothing but the gap goes
    assert (log.log_end_offset, log_bytes(log)) == (30, batches[0] + batches[1])
    follower.truncate_to(15)
    assert (log.log_end_offset, log_bytes(log)) == (10, batches[0])
    assert follower.truncate_to(10) == []


def test_truncation_below_the_first_segment_restarts_the_log_at_that_offset(tmp_path):
    log, follower = new_follower(tmp_path)
    follower.truncate_fully_and_start_at(100)
    follower.append(parse_fetched_batches(memoryview(records(100, 10, leader_epoch=4))), NOW)
    follower.update_high_watermark(110)
    gone = follower.truncate_to(60)
    assert sorted({path.suffixes[-1] for path in gone}) == [".deleted"]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, bases(log)) == (60, 60, 60, [60])
    assert not log.epochs.entries
    follower.append(parse_fetched_batches(memoryview(records(60, 10, leader_epoch=1))), NOW)
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 60)]


def test_truncation_of_a_marker_reopens_its_transaction(tmp_path):
    leader = Leader(tmp_path / "leader", random.Random(0))
    log, follower = new_follower(tmp_path / "follower")
    leader.write(60)
    copy(leader.log, follower, log)
    markers = [found.base_offset for found in plain_decoder.decode_batches(read_all(log)) if found.is_control]
    for marker in reversed(markers):
        before = log.last_stable_offset
        follower.truncate_to(marker)
        assert log.last_stable_offset <= before
        assert log.last_stable_offset == never_longer(leader.log, tmp_path / f"{marker}", marker).last_stable_offset


def test_reader_during_truncation_sees_the_old_log_or_the_new_one(tmp_path):
    """At every change of a file, a read returns whole batches of a prefix of the log and raises no error."""
    leader = Leader(tmp_path / "leader", random.Random(1))
    leader.write(60)
    log, follower = new_follower(tmp_path / "follower")
    copy(leader.log, follower, log)
    whole = read_all(leader.log)
    reads: list[int] = []

    def read():
        data = read_all(log)
        assert whole.startswith(data)
        reads.append(len(data))

    offset = starts(leader.log)[20]
    with before_each_change(read):
        follower.truncate_to(offset)
    assert len(reads) > 5
    assert set(reads) == {len(read_all(log))}  # it is over for readers before the first file changes


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_kill_at_any_step_of_a_truncation_leaves_a_prefix_of_the_log(seed, tmp_path):
    """Kill a follower that appends, truncates and restarts; each copy is recovered and continues to follow."""
    chance = random.Random(seed)
    leader = Leader(tmp_path / "leader", chance)
    leader.write(50)
    log, follower = new_follower(tmp_path / "live")
    copies: list[Path] = []

    def kill():
        if chance.random() < 0.4:
            place = tmp_path / f"killed {len(copies)}"
            shutil.copytree(log.directory, place / "orders-0")
            copies.append(place)

    with before_each_change(kill):
        copy(leader.log, follower, log, max_bytes=400)
        for offset in sorted((chance.choice(starts(leader.log)) for _ in range(2)), reverse=True):
            if chance.random() < 0.5:
                log.flush()
            follower.truncate_to(offset)
        copy(leader.log, follower, log, max_bytes=2000)
        follower.truncate_fully_and_start_at(0)
    assert len(copies) > 20
    whole = read_all(leader.log)
    for place in copies:
        recovered = reopened(place, clean=False, recovery_point=chance.randrange(30), **SMALL)
        assert whole.startswith(log_bytes(recovered))
        again = Follower(recovered)
        end = recovered.log_end_offset
        assert_same(recovered, leader.log, end)
        other = never_longer(leader.log, place / "other", end)
        assert sorted(recovered.producer_state.entries()) == sorted(other.producer_state.entries())
        copy(leader.log, again, recovered)
        assert_same(recovered, leader.log)
        assert sorted(recovered.producer_state.entries()) == sorted(leader.log.producer_state.entries())
        recovered.close()
        assert findings(recovered) == []
        shutil.rmtree(place)
