"""A log directory in a bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kafkalog_spark.format import names
from kafkalog_spark.sink.log_directory import LogDirectory
from kafkalog_spark.store.interface import Buffer, Listing
from kafkalog_spark.store.object_store import AgedObject, ObjectStore
from kafkalog_spark.store.storage_options import StorageOptions

MAX_SINGLE_PUT_BYTES = 64 << 20
"""Objects up to this size are created by a single conditional PUT.

Larger ones need a multipart upload, which cannot be conditional, so the caller first checks whether the
object exists."""


@dataclass(frozen=True)
class BucketDirectory(LogDirectory):
    """Lists, reads, writes and deletes objects of a log directory. An object is durable when its put returns.

    Attributes:
        root: Normalised URL.
        parallel: Maximum number of simultaneous requests of the writers and the committer.
        max_single_put_bytes: As MAX_SINGLE_PUT_BYTES, for the publisher of segments; smaller in tests.
    """

    root: str
    store: ObjectStore
    parallel: int = 8
    max_single_put_bytes: int = MAX_SINGLE_PUT_BYTES

    entry_noun = "an object"
    # The last partition is created first, so its number shows how many partitions the topic gets.
    lists_new_topics_whole = True
    requirements = "writing needs to list, get, put and delete objects"

    @property
    def storage(self) -> StorageOptions:  # type: ignore[override]
        return self.store.options

    def list_directory(self, directory: str = "", after: str = "") -> Listing:
        """List a directory from the name after `after` on; empty if it does not exist. One LIST request per page."""
        try:
            return self.store.list(self.path(directory), after)
        except FileNotFoundError:
            return Listing.of({}, ())

    def names_in_root(self) -> list[str]:
        return self.list_directory().names

    def partition_dirs(self) -> Iterable[names.PartitionDir]:
        listing = self.list_directory()
        directories = (names.parse_partition_dir(name) for name in listing.names if listing.is_directory(name))
        return [directory for directory in directories if directory is not None]

    def sizes(self, directory: str) -> dict[str, int]:
        """Return the sizes of the objects in a directory, by name."""
        return {name: info.size for name, info in self.list_directory(directory).files.items()}

    def objects_under(
        self, directory: str, stop_at: Callable[[AgedObject], bool] = lambda _: False
    ) -> Sequence[AgedObject]:
        """Return the objects below a directory, before the first for which `stop_at` is true."""
        return self.store.objects_under(self.path(directory), stop_at)

    def read(self, name: str, max_bytes: int) -> bytes:
        return self.store.read_all(self.path(name), max_bytes)

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        self.before_change("create", name)
        return self.store.put_if_absent(self.path(name), data)

    def replace(self, name: str, data: Buffer, *, sync: bool = True) -> None:
        """Write or replace an object. It is durable on return, whatever `sync` is."""
        self.before_change("put", name)
        self.store.put(self.path(name), data)

    def replace_empty(self, name: str, data: Buffer) -> bool:
        """Replace an empty object; False if the object is no longer empty."""
        self.before_change("replace", name)
        return self.store.replace_empty(self.path(name), data)

    def delete(self, paths: Sequence[str]) -> None:
        if paths:
            self.before_change("delete", paths[0])
            self.store.delete([self.path(path) for path in paths])
