"""A mirror that runs out of file descriptors continues once descriptors are free."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog_broker.storage import topic_registry
from kafkalog_spark.format.atomic_file import replace_file
from tests.broker.mirror.helpers.scripted_source import ScriptedSource
from tests.broker.mirror.test_hostile_source import Running, honest


def failing_with(number: int, times: int) -> Callable[..., None]:
    """replace_file of the topic registry, which fails so many times."""
    left = iter(range(times))

    def replace(path: Path, data: bytes) -> None:
        if next(left, None) is not None:
            raise OSError(number, "it fails", str(path))
        replace_file(path, data)

    return replace


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalog_broker.mirror.mirror._SOURCE_BACKOFF_MS", (10, 20))


def test_mirror_without_free_descriptors_retries_topic_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        source = ScriptedSource(honest())
        async with source.serving(), Running(source, tmp_path / "mirror") as made:
            await made.until_copied(("orders", 0), ("orders", 1), ("clicks", 0))

    monkeypatch.setattr(topic_registry, "replace_file", failing_with(errno.EMFILE, 2))
    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert caplog.text.count("kafkalog.topics.json was not written to any log directory") == 2
    assert "Traceback" not in caplog.text


def test_mirror_with_a_failed_disk_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> BaseException | None:
        source = ScriptedSource(honest())
        async with source.serving(), Running(source, tmp_path / "mirror") as made:
            await asyncio.wait([made.running])
            ended = made.running.exception()
            made.running = asyncio.create_task(asyncio.sleep(0))
            return ended

    monkeypatch.setattr(topic_registry, "replace_file", failing_with(errno.EIO, 1))
    assert "not written to any log directory" in str(asyncio.run(run()))
