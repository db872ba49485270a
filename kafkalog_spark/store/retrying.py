"""Waits between the tries of a request."""

from __future__ import annotations

from kafkalog_spark.store.failures import Failure
from kafkalog_spark.store.storage_options import RetryPolicy

FIRST_WAIT = 0.1
"""Seconds before the second try. Each wait is twice as long, times a random factor, as AWS advises: so the requests of
many clients spread."""
LONGEST_WAIT = 10.0
INITIAL_CONNECT_TRIES = 4
"""Tries before a store has ever answered; they take less than two seconds. A store that cannot be reached then
probably has a mistyped endpoint, and the user should not wait for minutes."""


def wait_after(
    failure: Failure, tries: int, seconds: float, policy: RetryPolicy, *, known: bool, part: float
) -> float | None:
    """Return the seconds to wait before the next try; None to give up.

    Args:
        tries: Number of tries so far.
        seconds: Time since the first try.
        known: True if the store has ever answered.
        part: A random number from 0 to 1.
    """
    if not failure.transient or tries >= policy.tries or (not known and tries >= INITIAL_CONNECT_TRIES):
        return None
    wait = min(FIRST_WAIT * 2 ** (tries - 1), LONGEST_WAIT) * (0.5 + part / 2)
    return wait if seconds + wait < policy.seconds else None
