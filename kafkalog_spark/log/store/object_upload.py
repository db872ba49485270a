"""Objects that are written in ways that whole puts do not cover: larger than memory should hold, or in the place of one
that is empty."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.log.store.object_client import TryFailed
from kafkalog_spark.log.store.object_errors import Failure
from kafkalog_spark.log.store.object_file import Buffer
from kafkalog_spark.log.store.object_store import ObjectStore
from kafkalog_spark.log.store.object_writer import PART
from kafkalog_spark.log.store.urls import place_of

UPLOADS_AT_ONCE = 2
"""Parts in flight of one upload: with the part that is being filled, 48 MiB."""

_CANNOT_REPLACE = Failure(
    errno.ENOTSUP,
    "the store takes no notice of If-Match, so an empty object cannot be replaced by one writer alone: delete it, when "
    "nobody writes",
)


def upload(store: ObjectStore, path: str, pieces: Callable[[], Iterable[Buffer]], size: int) -> None:
    """Write an object of `size` bytes in parts; it appears whole, after the last piece. No condition: the library has
    none for uploads in parts. pieces: called for each try. Raises OSError, and what `pieces` raises."""
    parts = -(-size // PART) + 2
    client = store.client
    failed: list[KafkalogError] = []
    try:
        call = partial(_upload, key=place_of(path).key, pieces=lambda: _reported(pieces, failed))
        client.ask(path, call, in_parts=True, put=parts)
    except OSError:
        if failed:
            raise failed[-1] from None
        raise
    client.tally.add(bytes_written=size)


def _upload(library: Any, *, key: str, pieces: Callable[[], Iterable[Buffer]]) -> None:
    import obstore

    writer = obstore.open_writer(library, key, buffer_size=PART, max_concurrency=UPLOADS_AT_ONCE)
    for piece in pieces():
        writer.write(bytes(piece))
    writer.close()


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
    key = place_of(path).key
    try:
        found = client.ask(path, lambda library: library.head(key), head=1)
    except FileNotFoundError:
        return False
    if found["size"]:
        return False
    version = {name: found[name] for name in ("e_tag", "version") if found[name] is not None}
    replaced = client.ask(path, partial(_replace, key=key, data=data, version=version), put=1)
    if replaced:
        client.tally.add(bytes_written=len(data))
    return replaced


def _replace(library: Any, *, key: str, data: Buffer, version: dict[str, str]) -> bool:
    from obstore.exceptions import PreconditionError

    try:
        library.put(key, bytes(data), mode=version, use_multipart=False)
    except PreconditionError:
        return False
    except NotImplementedError:
        raise TryFailed(_CANNOT_REPLACE) from None
    return True
