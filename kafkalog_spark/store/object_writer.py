"""Writes to a bucket: whole objects, conditional puts, uploads in parts."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.store.interface import parse_path
from kafkalog_spark.store.object_client import Failure, TryFailed, object_is_missing
from kafkalog_spark.store.object_store import Buffer, ObjectStore

PART = 16 << 20
"""Bytes of a part of a large object. S3 takes 10,000 parts of at least 5 MiB: 16 MiB allow 156 GiB, more than a segment
can have."""
PARTS_AT_ONCE = 4

_NO_CONDITIONAL_PUT = Failure(
    errno.ENOTSUP,
    "the store takes no notice of If-None-Match, so two writers could overwrite each other: write to one that has "
    "conditional puts (AWS S3, Google, Azure, MinIO, Ceph, R2)",
)


@dataclass(frozen=True)
class ObjectWriter:
    """Writes where `store` reads."""

    store: ObjectStore

    def put(self, path: str, data: Buffer) -> None:
        """Write an object, in parts when it is large; it appears whole. Raises OSError."""
        key, large = parse_path(path).key, len(data) > PART

        def put(library: Any) -> None:
            library.put(key, bytes(data), use_multipart=large, chunk_size=PART, max_concurrency=PARTS_AT_ONCE)

        parts = -(-len(data) // PART) + 2 if large else 1  # with the requests that begin and end it
        self.store.client.ask(path, put, in_parts=large, put=parts)
        self.store.client.count(bytes_written=len(data))

    def put_if_absent(self, path: str, data: Buffer) -> bool:
        """Write an object that is not there; False, and nothing changed, where it is: of several writers at once one
        gets True. A try whose answer was lost may have written it, so the next one compares what it finds with `data`:
        writers that may meet must not write the same bytes. Raises OSError."""
        client = self.store.client
        key = parse_path(path).key
        tries = 0

        def create(library: Any) -> bool | None:
            nonlocal tries
            tries += 1
            return _create(library, key, data)

        made = client.ask(path, create, put=1)
        if made:
            client.count(bytes_written=len(data))
        elif tries > 1:
            return self.store.read_all(path, len(data) + 1) == bytes(data)
        return bool(made)

    def expect_conditional_put(self, directory: str) -> None:
        """Make sure by two puts that `put_if_absent` keeps its promise here. Raises OSError with what to do."""
        path = posixpath.join(directory, f".kafkalog-probe-{uuid4().hex}")
        try:
            self.put_if_absent(path, b"first")
            if self.put_if_absent(path, b"second"):
                raise _NO_CONDITIONAL_PUT.error(directory)
        finally:
            self.delete([path])

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; one that is not there is no error. Raises OSError."""
        keys = [parse_path(path).key for path in paths]
        for begin in range(0, len(keys), _DELETED_AT_ONCE):
            some = keys[begin : begin + _DELETED_AT_ONCE]
            self.store.client.ask(paths[begin], partial(_delete, keys=some), delete=1)


_DELETED_AT_ONCE = 1000  # keys that S3 takes in one request


def _create(library: Any, key: str, data: Buffer) -> bool | None:
    """True if it was made; None when there is one. Raises TryFailed, and what the library raises."""
    from obstore.exceptions import AlreadyExistsError

    try:
        library.put(key, bytes(data), mode="create", use_multipart=False)
    except AlreadyExistsError as error:
        conflict = "status code: 409" in str(error)
    except NotImplementedError:
        raise TryFailed(_NO_CONDITIONAL_PUT) from None
    else:
        return True
    if conflict:  # another put of the same object has begun and not ended: who wins is not known yet
        raise TryFailed(Failure(errno.EEXIST, "another writer is writing the object", transient=True))
    return None


def _delete(library: Any, *, keys: list[str]) -> None:
    try:
        library.delete(keys)
    except FileNotFoundError as error:
        if not object_is_missing(error):
            raise
        for key in keys if len(keys) > 1 else ():  # Google and Azure: S3 takes no notice of what is not there
            _delete(library, keys=[key])


# Objects that are written in ways that whole puts do not cover: larger than memory should hold, or in the place of
# one that is empty.

UPLOADS_AT_ONCE = 2  # parts in flight of one upload: with the part that is being filled, 48 MiB

_CANNOT_REPLACE = Failure(
    errno.ENOTSUP,
    "the store takes no notice of If-Match, so an empty object cannot be replaced by one writer alone: delete it, when "
    "nobody writes",
)


def upload(store: ObjectStore, path: str, pieces: Callable[[], Iterable[Buffer]], size: int) -> None:
    """Write an object of `size` bytes in parts; it appears whole, after the last piece. No condition: the library has
    none for uploads in parts. pieces: called for each try. Raises OSError, and what `pieces` raises."""
    key, parts = parse_path(path).key, -(-size // PART) + 2
    failed: list[KafkalogError] = []

    def write(library: Any) -> None:
        import obstore

        writer = obstore.open_writer(library, key, buffer_size=PART, max_concurrency=UPLOADS_AT_ONCE)
        for piece in _reported(pieces, failed):
            writer.write(bytes(piece))
        writer.close()

    try:
        store.client.ask(path, write, in_parts=True, put=parts)
    except OSError:
        if failed:
            raise failed[-1] from None
        raise
    store.client.count(bytes_written=size)


def _reported(pieces: Callable[[], Iterable[Buffer]], failed: list[KafkalogError]) -> Iterable[Buffer]:
    """The pieces; an error of whoever makes them keeps its sentence, and is not tried again."""
    try:
        yield from pieces()
    except OSError as error:
        raise TryFailed(Failure(error.errno or errno.EIO, error.strerror or str(error))) from None
    except KafkalogError as error:
        failed.append(error)
        raise TryFailed(Failure(errno.EIO, error.what)) from None


def replace_empty(store: ObjectStore, path: str, data: Buffer) -> bool:
    """Write an object where an empty one lies; False when that has bytes by now, or is gone. Of several writers at once
    one gets True. Raises OSError."""
    client = store.client
    key = parse_path(path).key
    try:
        found = client.ask(path, lambda library: library.head(key), head=1)
    except FileNotFoundError:
        return False
    if found["size"]:
        return False
    version = {name: found[name] for name in ("e_tag", "version") if found[name] is not None}

    def put(library: Any) -> bool:
        from obstore.exceptions import PreconditionError

        try:
            library.put(key, bytes(data), mode=version, use_multipart=False)
        except PreconditionError:
            return False
        except NotImplementedError:
            raise TryFailed(_CANNOT_REPLACE) from None
        return True

    replaced = client.ask(path, put, put=1)
    if replaced:
        client.count(bytes_written=len(data))
    return replaced
