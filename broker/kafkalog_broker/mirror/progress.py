"""Progress of a mirror: a bar, a status line, or lines in the log."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

from tqdm import tqdm

from kafkalog_broker.mirror.mirror import Mirror

_log = logging.getLogger(__name__)

LOG_INTERVAL_S = 60.0  # interval of progress lines in the log
TICK_S = 1.0  # interval of `Progress.show`


def summary(mirror: Mirror, received_before: int, seconds: float) -> str:
    """Return one line with the number of partitions, the lag, the rate and the partitions that are not fetched now."""
    rate = (mirror.received_bytes - received_before) / max(seconds, 1e-9) / 1e6
    names = sorted(partition.name for partition in mirror.partitions.values() if partition.pause_reason is not None)
    waiting = f", {len(names)} waiting: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}" if names else ""
    return f"{len(mirror.partitions)} partitions, lag {mirror.lag:,} offsets, {rate:.1f} MB/s{waiting}"


class Progress:
    """Shows the progress: a bar with --once, a status line on a terminal, otherwise a log line per minute."""

    def __init__(self, mirror: Mirror, *, once: bool, stream: TextIO = sys.stderr) -> None:
        self._mirror = mirror
        self._stream = stream
        self._once = once
        self._is_terminal = stream.isatty()
        self._bar: tqdm[None] | None = None
        self._shown_at = time.monotonic()
        self._shown_bytes = 0

    def show(self) -> None:
        """Update the display."""
        now = time.monotonic()
        if self._is_terminal and self._once:
            self._draw_bar()
        elif self._is_terminal or now - self._shown_at >= LOG_INTERVAL_S:
            line = summary(self._mirror, self._shown_bytes, now - self._shown_at)
            self._shown_at = now
            self._shown_bytes = self._mirror.received_bytes
            if self._is_terminal:
                print(f"\r\x1b[K{line}", end="", file=self._stream, flush=True)
            else:
                _log.info("%s", line)

    def _draw_bar(self) -> None:
        targets = self._mirror.targets
        if targets is None:
            return
        partitions = self._mirror.partitions
        total = done = 0
        for key, end in targets.items():
            log = partitions[key].log if key in partitions else None
            total += max(end - (0 if log is None else log.log_start_offset), 0)
            done += 0 if log is None else max(min(log.log_end_offset, end) - log.log_start_offset, 0)
        if self._bar is None:
            self._bar = tqdm(total=total, unit=" offsets", unit_scale=True, file=self._stream)
        self._bar.total = total
        self._bar.n = done
        self._bar.refresh()

    def close(self) -> None:
        """Finish the bar or the status line."""
        if self._bar is not None:
            self._draw_bar()
            self._bar.close()
        elif self._is_terminal and not self._once:
            print(file=self._stream)
