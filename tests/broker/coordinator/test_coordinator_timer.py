"""Named timers and background tasks of a shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkalog_broker.coordinator.coordinator_executor import CoordinatorExecutor
from kafkalog_broker.coordinator.coordinator_result import CoordinatorResult
from kafkalog_broker.coordinator.coordinator_timer import RETRY_MS, CoordinatorTimer
from kafkalog_broker.errors import BrokerError, ErrorCode
from tests.broker.groups.helpers.virtual_time import VirtualTime


class Commits:
    """Collects the responses of committed results; fails while `failure` is set."""

    def __init__(self) -> None:
        self.responses: list[Any] = []
        self.failure: BrokerError | None = None

    def __call__(self, result: CoordinatorResult[Any, Any]) -> None:
        if self.failure is not None:
            raise self.failure
        self.responses.append(result.response)


def result(response: str) -> CoordinatorResult[Any, str]:
    return CoordinatorResult((), response)


def test_timer_with_the_same_key_replaces_the_earlier_one() -> None:
    time, commits = VirtualTime(), Commits()
    timer = CoordinatorTimer(time, commits)
    timer.schedule("session", 100, lambda: result("first"))
    timer.schedule("session", 200, lambda: result("second"))
    time.advance(199)
    assert (commits.responses, timer.is_scheduled("session")) == ([], True)
    time.advance(1)
    assert (commits.responses, timer.is_scheduled("session")) == (["second"], False)


def test_timer_runs_again_after_a_failed_commit() -> None:
    time, commits = VirtualTime(), Commits()
    timer = CoordinatorTimer(time, commits)
    timer.schedule("session", 100, lambda: result("expired"))
    commits.failure = BrokerError(ErrorCode.not_coordinator, "the log says no")
    time.advance(100)
    assert timer.is_scheduled("session")
    commits.failure = None
    time.advance(RETRY_MS)
    assert commits.responses == ["expired"]


def test_cancelled_timer_does_not_run() -> None:
    time, commits = VirtualTime(), Commits()
    timer = CoordinatorTimer(time, commits)
    timer.schedule("session", 100, lambda: result("expired"))
    timer.cancel_all()
    time.advance(100)
    assert (commits.responses, time.waiting) == ([], 0)


class Background:
    """Background work that is finished by `finish`."""

    def __init__(self) -> None:
        self.running: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def __call__(self, task: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.running.append((task, done))

    def finish(self) -> None:
        task, done = self.running.pop(0)
        done(task())


def test_executor_commits_the_outcome_once_and_ignores_a_scheduled_key() -> None:
    background, commits = Background(), Commits()
    executor = CoordinatorExecutor(background, commits)
    for _ in range(2):
        executor.schedule("assign", lambda: "assigned", lambda outcome: result(str(outcome)))
    assert len(background.running) == 1
    background.finish()
    assert (commits.responses, executor.is_scheduled("assign")) == (["assigned"], False)


def test_executor_drops_the_outcome_of_a_cancelled_task() -> None:
    background, commits = Background(), Commits()
    executor = CoordinatorExecutor(background, commits)
    executor.schedule("assign", lambda: "old", lambda outcome: result(str(outcome)))
    executor.cancel("assign")
    executor.schedule("assign", lambda: "new", lambda outcome: result(str(outcome)))
    background.finish()
    assert commits.responses == []
    background.finish()
    assert commits.responses == ["new"]
