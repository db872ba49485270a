"""How far a mirror is: a bar with --once, a line that is written over on a terminal, a line a minute elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

from tqdm import tqdm

from kafkalog_broker.mirror.mirror import Mirror

_log = logging.getLogger(__name__)

_EVERY_S = 60.0
TICK_S = 1.0
"""How often `show` is to be called."""


def summary(mirror: Mirror, received_before: int, seconds: float) -> str:
    """One line: partitions, lag, MB a second, what stands still."""
    rate = (mirror.received_bytes - received_before) / max(seconds, 1e-9) / 1e6
    still = sorted(one.name for one in mirror.partitions.values() if one.trouble is not None)
    waiting = f", {len(still)} stand still: {', '.join(still[:3])}{' ...' if len(still) > 3 else ''}" if still else ""
    return f"{len(mirror.partitions)} partitions, lag {mirror.lag:,} offsets, {rate:.1f} MB/s{waiting}"


class Progress:
    """Of one run. stream: where a bar or a line is drawn, if that is a terminal."""

    def __init__(self, mirror: Mirror, *, once: bool, stream: TextIO = sys.stderr) -> None:
        self._mirror = mirror
        self._stream = stream
        self._once = once
        self._is_terminal = stream.isatty()
        self._bar: tqdm[None] | None = None
        self._told_at = self._shown_at = time.monotonic()
        self._told_bytes = self._shown_bytes = 0

    def show(self) -> None:
        """Bring it up to date."""
        now = time.monotonic()
        if self._is_terminal and self._once:
            self._draw_bar()
        elif self._is_terminal:
            line = summary(self._mirror, self._shown_bytes, now - self._shown_at)
            print(f"\r\x1b[K{line}", end="", file=self._stream, flush=True)
            self._shown_at, self._shown_bytes = now, self._mirror.received_bytes
        elif now - self._told_at >= _EVERY_S:
            _log.info("%s", summary(self._mirror, self._told_bytes, now - self._told_at))
            self._told_at, self._told_bytes = now, self._mirror.received_bytes

    def _draw_bar(self) -> None:
        targets = self._mirror.targets
        if targets is None:
            return
        partitions = self._mirror.partitions
        starts = {key: partitions[key].log.log_start_offset if key in partitions else 0 for key in targets}
        total = sum(max(end - starts[key], 0) for key, end in targets.items())
        done = sum(
            max(min(partitions[key].log.log_end_offset, end) - starts[key], 0)
            for key, end in targets.items()
            if key in partitions
        )
        if self._bar is None:
            self._bar = tqdm(total=total, unit=" offsets", unit_scale=True, file=self._stream)
        self._bar.total = total
        self._bar.n = done
        self._bar.refresh()

    def close(self) -> None:
        """Leave the terminal as it should be."""
        if self._bar is not None:
            self._draw_bar()
            self._bar.close()
        elif self._is_terminal and not self._once:
            print(file=self._stream)
