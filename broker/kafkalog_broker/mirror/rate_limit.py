"""--max-bytes-per-second."""

from __future__ import annotations


class RateLimit:
    """Shared by all connections of a mirror. bytes_per_second: None without a limit. Times in s, of one clock."""

    def __init__(self, bytes_per_second: int | None) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0

    def bound(self, max_bytes: int) -> int:
        """How much to ask for at once: what comes in a second, so that the rate is not a row of bursts."""
        return max_bytes if self._rate is None else max(min(max_bytes, self._rate), 1)

    def took(self, size: int, now: float) -> float:
        """So many bytes came: for how long to ask for nothing."""
        if self._rate is None:
            return 0.0
        self._free_at = max(self._free_at, now) + size / self._rate
        return self._free_at - now
