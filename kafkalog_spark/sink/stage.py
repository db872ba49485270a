"""Staging area of a task: files with whole record batches, which a commit makes segments of."""

from __future__ import annotations

from typing import Protocol


class Stage(Protocol):
    """Staged files of one task attempt. All methods raise OSError."""

    piece_bytes: int  # most bytes of a file
    held_bytes: int  # most bytes of all unfinished files

    def begin(self, task: int, attempt: str, number: int) -> str:
        """Begin a file and return its name, relative to the log directory. Raises JobEnded."""

    def append(self, name: str, data: memoryview) -> None:
        """Append `data`, which the caller may reuse on return."""

    def finish(self, name: str) -> None:
        """Tell that the file is complete."""

    def close(self) -> None:
        """Wait until all finished files are stored."""

    def discard(self) -> None:
        """Remove all files of the attempt, also after an error."""
