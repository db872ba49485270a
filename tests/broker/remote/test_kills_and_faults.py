"""Kills at every step of copying and deletion, and errors of the remote storage.

No acknowledged record is lost, and no orphaned object remains. The storage and `__remote_log_metadata` are real. After
a kill no further step runs, and no lock, checkpoint or cache survives.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
from pathlib import Path

import pytest

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.partition.log import Log
from tests.broker.remote.helpers.remote_logs import TOPIC, Killed, RemoteLogs, Steps, begun
from tests.broker.storage.helpers.synced_files import recorded_syncs


async def work(logs: RemoteLogs, dice: random.Random, count: int, delete_to: int) -> int:
    """Append, copy and delete records; return how many were acknowledged."""
    for _ in range(3):
        logs.append(range(count))
        await logs.settle()
    log = logs.broker.log("orders")
    if delete_to:
        log.delete_records(min(delete_to, log.high_watermark))
        await logs.settle()
    return log.log_end_offset


async def all_steps(directory: Path) -> int:
    """Return how many steps the work has without a fault."""
    logs = await begun(directory)
    await work(logs, random.Random(0), 20, 25)
    assert logs.objects() == logs.finished() != set()
    assert await logs.offsets() == list(range(25, 60))
    steps = len(logs.steps.what)
    await logs.stop()
    return steps


async def killed_once(directory: Path, step: int, dice: random.Random) -> None:
    logs = await begun(directory, Steps(kill_at=step))
    await work(logs, dice, 20, 25)
    log = logs.broker.log("orders")
    start, end = log.log_start_offset, log.log_end_offset
    await logs.kill()
    logs = RemoteLogs(directory)
    await logs.start()
    log = logs.broker.log("orders")
    assert log.log_end_offset == end
    assert log.log_start_offset <= start  # the checkpoint of the log start offset may be old
    assert await logs.offsets() == list(range(log.log_start_offset, end))
    logs.append(range(7))
    await logs.settle()
    assert await logs.offsets() == list(range(log.log_start_offset, end + 7))
    assert logs.objects() == logs.finished()
    await logs.stop()


def test_kill_at_every_step_leaves_the_old_or_the_new_state(tmp_path: Path) -> None:
    steps = asyncio.run(all_steps(tmp_path / "whole"))
    assert steps > 100
    dice = random.Random(5)
    for number in sorted(dice.sample(range(steps), 12)):
        asyncio.run(killed_once(tmp_path / f"killed-{number}", number, dice))


@pytest.mark.slow
def test_kill_at_two_hundred_steps_leaves_the_old_or_the_new_state(tmp_path: Path) -> None:
    steps = asyncio.run(all_steps(tmp_path / "whole"))
    dice = random.Random(6)
    for round_number in range(200):
        asyncio.run(killed_once(tmp_path / f"killed-{round_number}", round_number % steps, dice))


def test_records_deleted_before_their_copy_remain_deleted_after_a_kill(tmp_path: Path) -> None:
    """The leader epochs are on disk before the response, the checkpoint of log start offsets comes later."""

    async def run() -> None:
        logs = await begun(tmp_path / "data")
        logs.append(range(60))
        log = logs.broker.log("orders")
        log.delete_records(20)
        log.flush_epochs()  # as DeleteRecords does before it responds
        await logs.kill()
        logs = RemoteLogs(tmp_path / "data")
        await logs.start()
        logs.append(range(7))
        await logs.settle()
        assert await logs.offsets() == list(range(20, 67))
        assert logs.objects() == logs.finished() != set()
        await logs.stop()

    asyncio.run(run())


async def with_faults(directory: Path, seed: int, share: float) -> None:
    dice = random.Random(seed)
    logs = await begun(directory, Steps(fails=lambda step: dice.random() < share))
    end = await work(logs, dice, 20, 25)
    logs.steps.fails = lambda step: False
    for _ in range(3):
        await logs.settle()
    log = logs.broker.log("orders")
    assert await logs.offsets() == list(range(log.log_start_offset, end))
    assert log.log_start_offset == 25
    assert logs.objects() == logs.finished() != set()
    assert len(log.segments) == 2
    assert not any(path.suffix == ".deleted" for path in log.directory.iterdir())
    await logs.stop()


def test_faults_of_the_remote_storage_lose_no_record_and_leave_no_orphan(tmp_path: Path) -> None:
    for seed in range(4):
        asyncio.run(with_faults(tmp_path / f"faults-{seed}", seed, 0.1 + 0.1 * seed))


@pytest.mark.slow
def test_two_hundred_runs_with_remote_storage_faults_lose_no_record_and_leave_no_orphan(tmp_path: Path) -> None:
    for seed in range(200):
        asyncio.run(with_faults(tmp_path / f"faults-{seed}", seed, 0.02 * (seed % 20)))


async def deleted_topic(directory: Path, step: int) -> None:
    logs = await begun(directory)
    await work(logs, random.Random(1), 20, 0)
    assert logs.objects()
    topic = logs.broker.topic("orders")
    logs.steps.kill_at = len(logs.steps.what) + step
    logs.broker.topics.delete_all(["orders"])
    removal = logs.broker.logs.detach_topic(topic)
    with contextlib.suppress(Killed):
        await logs.manager.delete_topic_segments(topic)
        removal.finish()
        await logs.idle()
    await logs.kill()
    deleted = logs.broker.topics.deleted
    logs = RemoteLogs(directory)
    logs.deleted = deleted
    await logs.start()
    await logs.settle()
    assert logs.objects() == set()
    assert logs.broker.topics.get("orders") is None
    await logs.stop()


def test_topic_deletion_killed_at_any_step_leaves_no_remote_segment(tmp_path: Path) -> None:
    for step in (0, 1, 2, 3, 4, 5, 8, 13, 100):
        asyncio.run(deleted_topic(tmp_path / f"deleted-{step}", step))


def test_lost_leader_epoch_checkpoint_keeps_remote_segments_readable(tmp_path: Path) -> None:
    """After a power cut before its fsync, the checkpoint is empty although all records are on disk."""

    async def run() -> None:
        logs = await begun(tmp_path / "data")
        logs.append(range(60))
        await logs.settle()
        log = logs.broker.log("orders")
        log.flush()
        copied = logs.finished()
        assert log.local_log_start_offset > 0
        await logs.kill()
        (log.directory / "leader-epoch-checkpoint").write_bytes(b"")
        logs = RemoteLogs(tmp_path / "data")
        await logs.start()
        await logs.settle()
        assert copied <= logs.finished() == logs.objects()
        assert await logs.offsets() == list(range(60))
        await logs.stop()

    asyncio.run(run())


def test_log_that_cannot_be_restored_is_offline_and_others_are_served(tmp_path: Path) -> None:
    async def run() -> None:
        logs = RemoteLogs(tmp_path / "data")
        logs.broker.create("orders", 1, **TOPIC)
        logs.broker.create("payments", 1, **TOPIC)
        await logs.start()
        logs.append(range(60))
        logs.append(range(3), "payments")
        await logs.settle()
        directory = logs.broker.log("orders").directory
        await logs.kill()
        shutil.rmtree(directory)  # the log ends before its remote segments, which are needed to restore it
        logs = RemoteLogs(tmp_path / "data", Steps(fails=lambda step: step == "fetch index"))
        await logs.start()
        with pytest.raises(BrokerError, match="a fault at fetch index"):
            logs.append(range(1))
        logs.append(range(1), "payments")
        assert await logs.offsets("payments") == list(range(4))
        await logs.stop()

    asyncio.run(run())


def test_restore_has_the_log_on_disk_before_the_epoch_that_marks_it_as_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the epoch, but without the log, a start after a power cut would go on at an offset that was used before."""
    before_lead: list[str] = []

    async def run() -> None:
        logs = await begun(tmp_path / "data")
        logs.append(range(60))
        await logs.settle()
        directory = logs.broker.log("orders").directory
        await logs.kill()
        shutil.rmtree(directory)
        logs = RemoteLogs(tmp_path / "data")
        lead = Log.lead
        with recorded_syncs() as synced:

            def leading(log: Log, epoch: int) -> None:
                before_lead.extend(synced)
                lead(log, epoch)

            monkeypatch.setattr(Log, "lead", leading)
            await logs.start()
        await logs.stop()

    asyncio.run(run())
    replaced = before_lead.index("leader-epoch-checkpoint.tmp")
    snapshot = next(slot for slot, name in enumerate(before_lead) if name.endswith(".snapshot.tmp"))
    assert "orders-0" in before_lead[max(replaced + 2, snapshot) :], "the name of the new segment"
