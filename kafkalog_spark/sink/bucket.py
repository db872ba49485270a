"""What a commit does to a bucket, one method a kind of step: the thin shell of the sink there, as disk.Disk is here.

Every change passes `step` first. Tests let it fail or stop the writer there, or let another one write in between.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.store.interface import normalised
from kafkalog_spark.store.object_file import Buffer
from kafkalog_spark.store.object_store import AgedObject, ObjectStore, modified, objects_below
from kafkalog_spark.store.object_writer import ObjectWriter, replace_empty, upload
from kafkalog_spark.store.storage_options import StorageOptions
from kafkalog_spark.store.stores import store_of

WHOLE_BYTES = 64 << 20
"""An object of up to so many bytes is put whole, on the condition that there is none. A larger one goes in parts, which
know no condition: it is looked for before."""


@dataclass(frozen=True)
class Bucket:
    """A log directory in a bucket. Names are paths from `root` on. All methods raise OSError.

    parallel: requests that are made at once, at most. whole_bytes: WHOLE_BYTES.
    """

    root: str
    store: ObjectStore
    parallel: int = 8
    whole_bytes: int = WHOLE_BYTES

    @classmethod
    def at(cls, path: str, storage: StorageOptions) -> Bucket:
        """Raises OptionError for a path that is not in an object store."""
        root = normalised(path)
        store = store_of(root, storage)
        assert isinstance(store, ObjectStore), root
        return cls(root, store)

    def step(self, what: str, name: str) -> None:
        """Called before each change, with a word for it and the name that changes."""

    def path(self, name: str) -> str:
        return posixpath.join(self.root, name) if name else self.root

    # ---- looking

    def names(self, directory: str = "", after: str = "") -> tuple[list[str], list[str]]:
        """(files, directories) in a directory, sorted; none where there is nothing. Raises NotADirectoryError."""
        try:
            listing = self.store.list(self.path(directory), after)
        except FileNotFoundError:
            return [], []
        found = sorted(listing.names)
        directories = [name for name in found if listing.is_directory(name)]
        return [name for name in found if name in listing.files], directories

    def sizes(self, directory: str) -> dict[str, int]:
        """Bytes of the files in a directory; none where there is nothing."""
        try:
            return {name: facts.size for name, facts in self.store.list(self.path(directory)).files.items()}
        except FileNotFoundError:
            return {}

    def read(self, name: str, most: int) -> bytes:
        """Raises FileNotFoundError."""
        return self.store.read_all(self.path(name), most)

    def below(self, directory: str, enough: Callable[[AgedObject], bool] = lambda _: False) -> list[AgedObject]:
        """object_ages.objects_below."""
        return objects_below(self.store, self.path(directory), enough)

    def modified(self, name: str) -> float:
        """object_ages.modified."""
        return modified(self.store, self.path(name))

    # ---- changing

    def expect_conditional_put(self, directory: str) -> None:
        """ObjectWriter.expect_conditional_put: leaves nothing."""
        self.step("probe", directory)
        self._writer.expect_conditional_put(self.path(directory))

    def create(self, name: str, data: Buffer) -> bool:
        """Write an object that is not there; False when it is."""
        self.step("create", name)
        return self._writer.put_if_absent(self.path(name), data)

    def put(self, name: str, data: Buffer) -> None:
        self.step("put", name)
        self._writer.put(self.path(name), data)

    def replace_empty(self, name: str, data: Buffer) -> bool:
        """object_upload.replace_empty."""
        self.step("replace", name)
        return replace_empty(self.store, self.path(name), data)

    def upload(self, name: str, pieces: Callable[[], Iterable[Buffer]], size: int) -> None:
        """object_upload.upload."""
        self.step("upload", name)
        upload(self.store, self.path(name), pieces, size)

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects that may have gone already."""
        if names:
            self.step("delete", names[0])
            self._writer.delete([self.path(name) for name in names])

    @property
    def _writer(self) -> ObjectWriter:
        return ObjectWriter(self.store)

    def unwritable(self, error: OSError) -> NotALogDirectory:
        """The error for a bucket that the store does not let us write."""
        rights = "writing needs to list, get, put and delete objects"
        return NotALogDirectory(
            f"cannot be written: {error.strerror or error}",
            path=str(error.filename or self.root),
            hint=f"nothing was written; {rights}" if isinstance(error, PermissionError) else "nothing was written",
        )


# What a sink keeps in a bucket besides Kafka's own objects: names.
#
# kafkalog.commits/<20 digits>.json one commit each, numbered from 0 on; see bucket_record kafkalog.commits/done the
# last commit whose objects are all there: a shortcut, see commit_log kafkalog.staged/<job>/<task>-<attempt>-<n>.log
# whole batches of one partition, their offsets not given yet

COMMITS = "kafkalog.commits"
STAGED = "kafkalog.staged"
DONE = f"{COMMITS}/done"

_RECORD = re.compile(r"([0-9]{20})\.json")
_PIECE = re.compile(r"kafkalog\.staged/([0-9a-f]{32})/[0-9]+-[0-9a-f]+-[0-9]+\.log")


def record_file(number: int) -> str:
    """Of commit `number`, in COMMITS. What comes before that of number 0 in a listing: an empty name."""
    return f"{number:020d}.json" if number >= 0 else ""


def record_name(number: int) -> str:
    """From the root on."""
    return posixpath.join(COMMITS, record_file(number))


def record_number(file: str) -> int | None:
    """The number of a commit, by the name of its record in COMMITS; None for another name."""
    found = _RECORD.fullmatch(file)
    return int(found[1]) if found else None


def staged_directory(job: str) -> str:
    return posixpath.join(STAGED, job)


def piece_name(job: str, task: int, attempt: str, number: int) -> str:
    """Of a staged object, from the root on."""
    return f"{STAGED}/{job}/{task}-{attempt}-{number}.log"


def is_piece_name(name: str) -> bool:
    return bool(_PIECE.fullmatch(name))
