"""Progress bar of a command on stderr, on a terminal only."""

from __future__ import annotations

import sys
from typing import Any, Self


class Progress:
    """Context manager. show: False where the terminal is wanted for something else. settings: tqdm's, unit and desc."""

    def __init__(self, *, show: bool = True, **settings: Any) -> None:
        self._bar = None
        if show and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(**settings, leave=False)

    def update(self, done: int, total: int) -> None:
        """`done` of `total`, which may have grown."""
        if self._bar is not None:
            self._bar.total = max(total, done)
            self._bar.update(done - self._bar.n)

    def step(self, doing: str, done: int, total: int) -> None:
        """`update`, with a word for the current step."""
        if self._bar is not None:
            self._bar.set_description(doing, refresh=False)
        self.update(done, total)

    def print(self, line: str) -> None:
        """A line on stdout, above the bar."""
        if self._bar is not None:
            self._bar.clear()
        print(line, flush=self._bar is not None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
