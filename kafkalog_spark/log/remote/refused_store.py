"""Store of remote segments that the reader has not allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from kafkalog_spark.errors import OptionError
from kafkalog_spark.store.interface import FetchBlock, FileFacts, Listing, OpenFile


@dataclass(frozen=True)
class RefusedStore:
    """Store whose methods all raise OptionError.

    The error is raised at the first use, because a log with all records on disk never uses its remote storage, and can
    be read without an option.

    Attributes:
        path: Path of the error.
        what: Text of the error.
        hint: Hint of the error.
    """

    path: str
    what: str
    hint: str
    is_remote = False

    def list(self, directory: str, after: str = "") -> Listing:
        self._refuse()

    def open(self, path: str, facts: FileFacts | None = None) -> OpenFile:
        self._refuse()

    def ranges(self, path: str, facts: FileFacts) -> FetchBlock:
        self._refuse()

    def read_all(self, path: str, max_bytes: int) -> bytes:
        self._refuse()

    def exists(self, directory: str) -> bool:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise OptionError(self.what, path=self.path, hint=self.hint)
