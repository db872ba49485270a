"""Trying again: which failures are worth it, how long to wait, when to give up. Decisions; the clock is passed in."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkalog_spark.log.store.object_errors import Failure
from kafkalog_spark.log.store.storage_options import RetryPolicy

FIRST_WAIT = 0.1
"""Seconds; then twice as long each time, as AWS advises, each time a random part of it so that many clients spread."""
LONGEST_WAIT = 10.0
TRIES_OF_A_STRANGER = 4
"""Before a store has ever answered, one that cannot be reached is a wrong endpoint sooner than a bad moment: four tries
take less than two seconds, and a user who mistyped should not wait for minutes."""


@dataclass
class Retrying:
    """One request, tried until it works, cannot work, or there is no time left."""

    policy: RetryPolicy
    known: bool
    """The store has answered before."""
    now: Callable[[], float] = time.monotonic
    part: Callable[[], float] = field(default=random.random)
    tries: int = 0

    def __post_init__(self) -> None:
        self._end = self.now() + self.policy.seconds

    def wait_after(self, failure: Failure) -> float | None:
        """Seconds to wait before the next try; None to give up."""
        self.tries += 1
        if not failure.transient or self.tries >= self.policy.tries:
            return None
        self.known = self.known or failure.answered
        if not self.known and self.tries >= TRIES_OF_A_STRANGER:
            return None
        wait = min(FIRST_WAIT * 2 ** (self.tries - 1), LONGEST_WAIT) * (0.5 + self.part() / 2)
        return wait if self.now() + wait < self._end else None
