"""Tasks that run from the start of a broker until it stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from kafkalog_broker.net.late_timer import sleep

_logger = logging.getLogger(__name__)


def run_until_stop(started: AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` as a task. When `started` unwinds, it cancels the task and waits for its end."""
    task = asyncio.create_task(work)
    started.push_async_callback(asyncio.wait, [task])
    started.callback(task.cancel)


async def repeat(task_name: str, every_s: float, work: Callable[[], Awaitable[None]]) -> None:
    """Call `work` every `every_s` seconds until cancelled. An exception is logged with `task_name`."""
    while True:
        await sleep(every_s)
        try:
            await work()
        except Exception:
            _logger.exception("%s failed and will be retried", task_name)
