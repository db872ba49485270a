"""Progress bar of a command on stderr, shown on a terminal only."""

from __future__ import annotations

import sys
from typing import Any, Self


class Progress:
    """Context manager of a progress bar.

    Args:
        show: False if the terminal is used for something else.
        **settings: tqdm's, such as unit and desc.
    """

    def __init__(self, *, show: bool = True, **settings: Any) -> None:
        self._bar = None
        if show and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(**settings, leave=False)

    def update(self, done: int, total: int) -> None:
        """Show that `done` of `total` are done. The total may grow."""
        if self._bar is not None:
            self._bar.total = max(total, done)
            self._bar.update(done - self._bar.n)

    def step(self, doing: str, done: int, total: int) -> None:
        """Update the bar, with a description of the current step."""
        if self._bar is not None:
            self._bar.set_description(doing, refresh=False)
        self.update(done, total)

    def print(self, line: str) -> None:
        """Print a line on stdout, above the bar."""
        if self._bar is not None:
            self._bar.clear()
        print(line, flush=self._bar is not None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
