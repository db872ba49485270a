"""Copies that fail: pauses before the next one, and the end of copying after too large custom metadata."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.broker.remote.helpers.remote_logs import RemoteLogs, Steps, begun


def test_pause_after_failed_copies_is_never_longer_than_the_maximum(tmp_path: Path) -> None:
    """Kafka's `ExponentialBackoff` limits the pause after it has added the jitter."""

    async def run() -> list[int]:
        logs = await begun(tmp_path / "data", Steps(fails=lambda step: step.startswith("put")))
        logs.broker.config = replace(
            logs.broker.config,
            remote_log_manager_task_retry_backoff_ms=1000,
            remote_log_manager_task_retry_backoff_max_ms=1500,
            remote_log_manager_task_retry_jitter=0.5,
        )
        logs.append(range(20))
        pauses = []
        for _ in range(20):
            await logs.manager.run_due()
            await logs.idle()
            (partition,) = logs.manager.partitions.values()
            now_ms = logs.broker.clock.monotonic_ms()
            pauses.append(partition.next_try_ms - now_ms)
            logs.broker.clock.advance(partition.next_try_ms - now_ms)
        assert partition.failures == 20
        logs.steps.fails = lambda step: False
        await logs.stop()
        return pauses

    pauses = asyncio.run(run())
    assert 500 <= pauses[0] <= 1500
    assert all(750 <= pause <= 1500 for pause in pauses[1:])
    assert pauses.count(1500) > 5
    assert len(set(pauses)) > 5


def test_too_large_custom_metadata_ends_the_copies_of_a_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        copy = logs.storage.copy

        def copy_with_large_metadata(*arguments: object) -> bytes:
            copy(*arguments)  # type: ignore[arg-type]
            return bytes(129)

        with monkeypatch.context() as patched:
            patched.setattr(logs.storage, "copy", copy_with_large_metadata)
            logs.append(range(20))
            await logs.settle()
            assert logs.manager.counts.copy_requests == logs.manager.counts.copy_errors == 1
            assert logs.objects() == logs.finished() == set()
        await logs.settle()
        assert logs.manager.counts.copy_requests == 1
        assert logs.broker.log("orders").segments[0].base_offset == 0
        await logs.stop()
        logs = RemoteLogs(tmp_path / "data")
        await logs.start()
        await logs.settle()
        assert logs.objects() == logs.finished() != set()
        await logs.stop()

    asyncio.run(run())
    assert ") is not copied to remote storage until the next start: the custom metadata of orders-0 " in caplog.text
