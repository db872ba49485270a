"""Rate limit of a mirror (--max-bytes-per-second)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RateLimit:
    """Limit of bytes per second over all connections of a mirror; a `_rate` of None means no limit.

    Times are seconds of one clock.
    """

    _rate: int | None
    _free_at: float = 0.0

    def bound(self, max_bytes: int) -> int:
        """Return `max_bytes`, or the bytes of one second if they are fewer, to avoid bursts."""
        return max_bytes if self._rate is None else max(min(max_bytes, self._rate), 1)

    def record(self, size: int, now: float) -> float:
        """Count received bytes, and return the seconds to wait before the next request."""
        if self._rate is None:
            return 0.0
        self._free_at = max(self._free_at, now) + size / self._rate
        return self._free_at - now
