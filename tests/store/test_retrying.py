"""When a request is tried again. The clock is the test's."""

from __future__ import annotations

import errno

import pytest

from kafkalog_spark.store import object_client
from kafkalog_spark.store.failures import Failure, TryFailed
from kafkalog_spark.store.object_client import ObjectClient
from kafkalog_spark.store.retrying import FIRST_WAIT, INITIAL_CONNECT_TRIES, LONGEST_WAIT, wait_after
from kafkalog_spark.store.storage_options import RetryPolicy, StorageOptions

BUSY = Failure(errno.EAGAIN, "busy", is_transient=True)
UNREACHABLE = Failure(errno.ECONNREFUSED, "unreachable", is_transient=True, was_answered=False)


def waits(failure: Failure, policy: RetryPolicy, *, known: bool = True, part: float = 1.0) -> list[float]:
    """All waits until it gives up; each try takes no time, each wait as long as it says."""
    found: list[float] = []
    known = known or failure.was_answered
    while (
        seconds := wait_after(failure, len(found) + 1, sum(found), policy, has_answered=known, jitter=part)
    ) is not None:
        found.append(seconds)
    return found


def test_backoff_doubles_up_to_the_maximum() -> None:
    found = waits(BUSY, RetryPolicy(11, 120))
    assert found[:4] == [FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT, 8 * FIRST_WAIT]
    assert (len(found), found[-1]) == (10, LONGEST_WAIT)
    assert waits(BUSY, RetryPolicy(3, 120), part=0.0) == [FIRST_WAIT / 2, FIRST_WAIT]


@pytest.mark.parametrize("seconds", [0.0, 0.25, 1.0, 30.0])
def test_no_retry_starts_after_the_deadline(seconds: float) -> None:
    found = waits(BUSY, RetryPolicy(1000, seconds))
    assert sum(found) < max(seconds, 1e-9)
    assert sum(found) + 2 * LONGEST_WAIT > seconds


def test_permanent_failure_is_not_retried() -> None:
    assert waits(Failure(errno.EACCES, "denied"), RetryPolicy()) == []
    assert waits(BUSY, RetryPolicy(1, 100)) == []


def test_store_that_never_responded_is_given_up_early() -> None:
    assert len(waits(UNREACHABLE, RetryPolicy(), known=False)) == INITIAL_CONNECT_TRIES - 1
    assert len(waits(UNREACHABLE, RetryPolicy(), known=True)) == 10
    assert len(waits(BUSY, RetryPolicy(), known=False)) == 10, "busy is an answer"


@pytest.mark.parametrize("answers", [0, 1])
def test_store_that_responded_once_is_retried_when_unreachable(monkeypatch: pytest.MonkeyPatch, answers: int) -> None:
    """A store that has answered once is tried on when it cannot be reached afterwards, also in the same request."""
    monkeypatch.setattr(object_client, "_process_of_library", None)
    client = ObjectClient("s3a", "bucket", StorageOptions())
    vars(client)["_without_retries"] = None  # no library: the requests are the test's
    failures = iter([BUSY] * answers + [UNREACHABLE] * (INITIAL_CONNECT_TRIES + 1))

    def call(_: object) -> str:
        if (failure := next(failures, None)) is not None:
            raise TryFailed(failure)
        return "here"

    if answers:
        assert client.request("s3a://bucket/x", call, wait=lambda _: False) == "here"
    else:
        with pytest.raises(OSError, match="unreachable"):
            client.request("s3a://bucket/x", call, wait=lambda _: False)
