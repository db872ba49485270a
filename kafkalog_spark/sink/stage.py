"""Interface of the staging area of a task: files with whole record batches, which become segments at the commit."""

from __future__ import annotations

from typing import Protocol


class Stage(Protocol):
    """Staged files of one task attempt. All methods raise OSError."""

    piece_bytes: int  # maximum size of a file
    held_bytes: int  # maximum size of all unfinished files together

    def begin(self, task: int, attempt: str, number: int) -> str:
        """Begin a file and return its name, relative to the log directory. Raises JobEnded."""

    def append(self, name: str, data: memoryview) -> None:
        """Append `data`, which the caller may reuse on return."""

    def finish(self, name: str) -> None:
        """Mark the file as complete: no data is appended any more."""

    def close(self) -> None:
        """Wait until all finished files are stored."""

    def discard(self) -> None:
        """Remove all files of the attempt, also after an error."""
