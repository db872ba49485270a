"""Waiting times between the tries of a request."""

from __future__ import annotations

from kafkalog_spark.store.failures import Failure
from kafkalog_spark.store.storage_options import RetryPolicy

FIRST_WAIT = 0.1
"""Seconds before the second try. Each further wait is twice as long, multiplied by a random factor (as AWS advises),
which spreads the requests of many clients."""
LONGEST_WAIT = 10.0  # seconds
INITIAL_CONNECT_TRIES = 4
"""Tries if the store has never responded. They take less than two seconds: the endpoint is probably mistyped, and the
user should not wait for minutes."""


def wait_after(
    failure: Failure, tries: int, seconds: float, policy: RetryPolicy, *, has_answered: bool, jitter: float
) -> float | None:
    """Return the seconds to wait before the next try; None to give up.

    Args:
        failure: Failure of the last try.
        tries: Number of tries so far.
        seconds: Time since the first try.
        policy: Limits of the retries.
        has_answered: True if the store has ever responded.
        jitter: A random number from 0 to 1.
    """
    if not failure.is_transient or tries >= policy.tries or (not has_answered and tries >= INITIAL_CONNECT_TRIES):
        return None
    wait = min(FIRST_WAIT * 2 ** (tries - 1), LONGEST_WAIT) * (0.5 + jitter / 2)
    return wait if seconds + wait < policy.seconds else None
