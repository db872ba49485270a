"""Interface for reading and changing the files of a log directory, on a disk or in a bucket."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.format import names
from kafkalog_spark.store.interface import Store
from kafkalog_spark.store.storage_options import StorageOptions


class LogDirectory(ABC):
    """Reads and changes files. Names are paths relative to the log directory. Methods that use files raise OSError."""

    root: str
    store: Store
    storage: StorageOptions | None = None
    entry_noun: str  # an entry that is not a directory, for messages: "a file"
    requirements: str  # requirements of a writer, for hints
    parallel: int  # maximum number of simultaneous steps
    lists_new_topics_whole: bool
    """True if a listing shows all partitions of a topic while another writer creates it."""

    def before_change(self, what: str, name: Any) -> None:  # noqa: B027
        """Hook for tests, which inject failures. Called before each change.

        Args:
            what: Word for the change, such as "create".
            name: Name or path of its file.
        """

    def path(self, name: str = "") -> str:
        return f"{self.root}/{name}" if name else self.root

    def unwritable(self, error: OSError) -> NotALogDirectory:
        """Return the error to raise for an OSError of this class before the write is committed."""
        return NotALogDirectory(
            f"cannot be written: {error.strerror or error}",
            path=str(error.filename or self.root),
            hint=f"nothing was written; {self.requirements}",
        )

    def run(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run all calls, up to `parallel` at once, and return their results."""
        if self.parallel == 1 or len(calls) < 2:
            return [call() for call in calls]
        with ThreadPoolExecutor(self.parallel, "sink") as threads:
            return [done.result() for done in [threads.submit(call) for call in calls]]

    @contextmanager
    def explained_os_errors(self) -> Iterator[None]:
        """Turn an OSError into a NotALogDirectory with the directory and its requirements."""
        try:
            yield
        except OSError as error:
            raise self.unwritable(error) from error

    def topics(self) -> dict[str, list[int]]:
        """Return the sorted partitions of each topic, by live partition directories."""
        topics: dict[str, list[int]] = {}
        for directory in self.partition_dirs():
            if directory.kind is names.DirKind.LIVE:
                topics.setdefault(directory.topic, []).append(directory.partition)
        return {topic: sorted(partitions) for topic, partitions in topics.items()}

    @abstractmethod
    def partition_dirs(self) -> Iterable[names.PartitionDir]:
        """Return the partition directories of every kind (DirKind); none if the log directory is missing."""

    @abstractmethod
    def names_in_root(self) -> list[str]:
        """Return the names directly in the log directory; none if it is missing."""

    @abstractmethod
    def read(self, name: str, max_bytes: int) -> bytes:
        """Return the content of a file of at most `max_bytes` bytes. Raises FileNotFoundError, CorruptFile."""

    @abstractmethod
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write a file, durable on return; False if there is one of that name."""

    @abstractmethod
    def replace(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """Write or replace a small file, durable on return if `sync`."""

    @abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Remove files. Missing ones are ignored."""
