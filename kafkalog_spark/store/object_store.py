"""Store of buckets (S3 and its protocol elsewhere, Google Cloud Storage, Azure): listings, reads and writes."""

from __future__ import annotations

import errno
import posixpath
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple
from uuid import uuid4

from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.store import object_client
from kafkalog_spark.store.failures import REPLACED, Failure, TryFailed, object_is_missing, truncated
from kafkalog_spark.store.interface import Buffer, FetchBlock, FileFacts, Listing, OpenFile
from kafkalog_spark.store.object_client import Wait
from kafkalog_spark.store.object_file import ObjectFile
from kafkalog_spark.store.paths import parse_path
from kafkalog_spark.store.request_counts import RequestCounts
from kafkalog_spark.store.storage_options import StorageOptions

PAGE = 1000  # most keys of one request that lists or deletes: S3, Google and versitygw have 1,000; Azure more
PART = 16 << 20
"""Bytes of a part of a large object. S3 takes up to 10,000 parts of at least 5 MiB; 16 MiB allow 156 GiB, more than a
segment can have."""
_PARTS_AT_ONCE = 4
_UPLOADS_AT_ONCE = 2  # parts in flight of an object made of pieces: 48 MiB with the part that is being filled

_NO_CONDITIONAL_PUT = Failure(
    errno.ENOTSUP,
    "the store ignores If-None-Match, so two writers could overwrite each other: write to one that has conditional "
    "puts (AWS S3, Google, Azure, MinIO, Ceph, R2)",
)
_CANNOT_REPLACE = Failure(
    errno.ENOTSUP,
    "the store ignores If-Match, so an empty object cannot be replaced by one writer alone: delete it while no writer "
    "runs",
)


class AgedObject(NamedTuple):
    """An object below a directory. name: relative to it. modified_s: seconds since 1970 by the store's clock."""

    name: str
    size: int
    modified_s: float


@dataclass(frozen=True)
class ObjectStore:
    """Store of one bucket, or of a container `container@account.dfs.core.windows.net` of Azure.

    All methods raise OSError, and OptionError for options that make no client.
    """

    scheme: str
    bucket: str
    options: StorageOptions = field(default_factory=StorageOptions)
    remote = True

    @property
    def client(self) -> object_client.ObjectClient:
        """This process's client of the bucket."""
        return object_client.client_for(self.scheme, self.bucket, self.options)

    def counts(self) -> RequestCounts:
        """Return the counts of this process's requests to the bucket with these options."""
        return self.client.counts

    def list(self, directory: str, after: str = "") -> Listing:
        """See Store.list. Makes a request for every 1,000 names.

        The library lists either from a key on or one level alone. So with `after` all levels below are listed, which is
        cheap for a partition, since it has no directories. The listing may be empty then, without an error.
        """
        key = parse_path(directory).key
        prefix = f"{key}/" if key else ""

        def call(library: Any) -> tuple[list[Any], list[str]]:
            if after:
                pages = library.list(key, offset=prefix + after, chunk_size=PAGE)
                return [found for page in pages for found in page], []
            level = library.list_with_delimiter(key)
            return level["objects"], level["common_prefixes"]

        objects, prefixes = self.client.ask(directory, call, in_parts=True, list=1)
        pages = -(-(len(objects) + len(prefixes)) // PAGE)
        self.client.count(list=max(pages - 1, 0))
        files: dict[str, FileFacts] = {}
        directories = {found.rstrip("/").removeprefix(prefix) for found in prefixes}
        for found in objects:
            # An object with the directory's own name is a marker that Hadoop or a console has made.
            name, below, _ = found["path"].removeprefix(prefix).partition("/")
            if found["path"] == key or name <= after:
                continue
            if below:
                directories.add(name)
            else:
                files[name] = _facts_of(found)
        if key and not (objects or prefixes or after):
            try:
                self._head(directory)
            except FileNotFoundError:
                reason = "nothing in the bucket begins with this path"
                raise FileNotFoundError(errno.ENOENT, reason, directory) from None
            raise NotADirectoryError(errno.ENOTDIR, "is an object, not a directory", directory)
        return Listing.of(files, directories)

    def open(self, path: str, facts: FileFacts | None = None) -> OpenFile:
        """See Store.open. Without facts it makes a HEAD."""
        if facts is None:
            facts = self._facts(path)
        closing = threading.Event()
        fetch = self.ranges(path, facts, wait=closing.wait)
        return ObjectFile(facts.size, fetch, changed=partial(self.has_changed, path, facts), closed=closing.set)

    def ranges(self, path: str, facts: FileFacts, *, wait: Wait | None = None) -> FetchBlock:
        """See Store.ranges. Each range is one GET. wait: see ObjectClient.ask."""
        key = parse_path(path).key
        client = self.client

        def fetch(begin: int, end: int) -> Buffer:
            options: dict[str, Any] = {"range": (begin, end)}
            if facts.version and not facts.version.startswith("W/"):  # a weak one matches nothing (RFC 9110, 13.1.1)
                options["if_match"] = facts.version

            def get(library: Any) -> memoryview:
                result = library.get(key, options=options)
                if not _is_same_version(facts, _facts_of(result.meta)):  # for stores that ignore If-Match
                    raise TryFailed(REPLACED)
                data = memoryview(result.bytes())
                if len(data) != end - begin:
                    raise TryFailed(truncated(end - begin, len(data)))
                return data

            data = client.ask(path, get, wait=wait, get=1)
            client.count(bytes_read=len(data))
            return data

        return fetch

    def has_changed(self, path: str, facts: FileFacts) -> bool:
        """Return True if the object was replaced or removed. One HEAD."""
        try:
            now = self._head(path)
        except FileNotFoundError:
            return True
        return not _is_same_version(facts, now)

    def _facts(self, path: str) -> FileFacts:
        try:
            return self._head(path)
        except OSError as error:
            failed = error
        # The response to a HEAD has no body; a LIST tells more exactly what is wrong.
        directory = failed.errno in (errno.ENOENT, errno.EACCES, errno.EINVAL) and self.exists(path)
        if directory and failed.errno == errno.ENOENT:
            raise IsADirectoryError(errno.EISDIR, "is a directory, not an object", path)
        raise failed

    def _meta(self, path: str) -> Any:
        key = parse_path(path).key
        return self.client.ask(path, lambda library: library.head(key), head=1)

    def _head(self, path: str) -> FileFacts:
        return _facts_of(self._meta(path))

    def modified(self, path: str) -> float:
        """Return when the object was written, in seconds since 1970 by the store's clock. One HEAD."""
        return float(self._meta(path)["last_modified"].timestamp())

    def read_all(self, path: str, most: int) -> bytes:
        """See Store.read_all. One GET."""
        key = parse_path(path).key

        def get(library: Any) -> bytes:
            result = library.get(key)
            wanted = min(result.meta["size"], most)
            if wanted == result.meta["size"]:
                data = bytes(result.bytes())
            else:
                data = b""
                for piece in result.stream(min_chunk_size=min(most, 1 << 20)):
                    data += piece
                    if len(data) >= wanted:
                        break
                data = data[:wanted]
            if len(data) != wanted:
                raise TryFailed(truncated(wanted, len(data)))
            return data

        data = self.client.ask(path, get, get=1)
        self.client.count(bytes_read=len(data))
        return data

    def exists(self, directory: str) -> bool:
        """Return True if the directory exists; the top of a bucket if the bucket exists. One LIST."""
        key = parse_path(directory).key
        page = self.client.ask(directory, lambda library: next(library.list(key, chunk_size=1), None), list=1)
        return bool(page) or not key

    def below(self, directory: str, enough: Callable[[AgedObject], bool] = lambda _: False) -> Sequence[AgedObject]:
        """Return the objects below a directory, at all levels, sorted by name, up to the first that is `enough`.

        None if there is no such directory. Makes a request for every 1,000 objects.
        """
        prefix = f"{parse_path(directory).key}/".lstrip("/")

        def walk(library: Any) -> list[AgedObject]:
            found: list[AgedObject] = []
            for meta in chain.from_iterable(library.list(prefix, chunk_size=PAGE)):
                name = meta["path"].removeprefix(prefix)
                aged = AgedObject(name, meta["size"], meta["last_modified"].timestamp())
                if enough(aged):
                    break
                found.append(aged)
            return found

        found = self.client.ask(directory, walk, in_parts=True, list=1)
        self.client.count(list=max(-(-len(found) // PAGE) - 1, 0))
        return found

    def put(self, path: str, data: Buffer) -> None:
        """Write an object, in parts if it is large. It appears whole."""
        key, large = parse_path(path).key, len(data) > PART

        def put(library: Any) -> None:
            library.put(key, bytes(data), use_multipart=large, chunk_size=PART, max_concurrency=_PARTS_AT_ONCE)

        parts = -(-len(data) // PART) + 2 if large else 1  # with the requests that begin and end it
        self.client.ask(path, put, in_parts=large, put=parts)
        self.client.count(bytes_written=len(data))

    def put_if_absent(self, path: str, data: Buffer) -> bool:
        """Write an object if there is none; False otherwise. One of several concurrent writers gets True.

        A try whose answer was lost may have written the object, so the next try compares the object with `data`.
        Therefore concurrent writers must not write the same bytes.
        """
        key = parse_path(path).key
        tries = 0

        def create(library: Any) -> bool:
            nonlocal tries
            tries += 1
            return _create(library, key, data)

        made = self.client.ask(path, create, put=1)
        if made:
            self.client.count(bytes_written=len(data))
        elif tries > 1:
            return self.read_all(path, len(data) + 1) == bytes(data)
        return made

    def expect_conditional_put(self, directory: str) -> None:
        """Raise OSError unless the store refuses the second of two conditional puts."""
        path = posixpath.join(directory, f".kafkalog-probe-{uuid4().hex}")
        try:
            self.put_if_absent(path, b"first")
            if self.put_if_absent(path, b"second"):
                raise _NO_CONDITIONAL_PUT.error(directory)
        finally:
            self.delete([path])

    def replace_empty(self, path: str, data: Buffer) -> bool:
        """Replace an empty object; False if it is no longer empty, or gone. One of several writers gets True."""
        key = parse_path(path).key
        try:
            found = self._meta(path)
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

        replaced = self.client.ask(path, put, put=1)
        if replaced:
            self.client.count(bytes_written=len(data))
        return replaced

    def upload(self, path: str, pieces: Callable[[], Iterable[Buffer]], size: int) -> None:
        """Write an object that is too large for memory, in parts. It appears whole, after the last piece.

        There is no condition, since the library has none for multipart uploads.

        Args:
            pieces: Called for each try. Its KafkalogErrors are raised unchanged.
            size: Bytes of the object.
        """
        key, parts = parse_path(path).key, -(-size // PART) + 2
        failed: list[KafkalogError] = []

        def write(library: Any) -> None:
            import obstore

            writer = obstore.open_writer(library, key, buffer_size=PART, max_concurrency=_UPLOADS_AT_ONCE)
            for piece in _reported(pieces, failed):
                writer.write(bytes(piece))
            writer.close()

        try:
            self.client.ask(path, write, in_parts=True, put=parts)
        except OSError:
            if failed:
                raise failed[-1] from None
            raise
        self.client.count(bytes_written=size)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects. Missing ones are ignored."""
        keys = [parse_path(path).key for path in paths]
        for begin in range(0, len(keys), PAGE):
            self.client.ask(paths[begin], partial(_delete, keys=keys[begin : begin + PAGE]), delete=1)


def _create(library: Any, key: str, data: Buffer) -> bool:
    """Put an object if absent; False if there is one. Raises TryFailed and the library's exceptions."""
    from obstore.exceptions import AlreadyExistsError

    try:
        library.put(key, bytes(data), mode="create", use_multipart=False)
    except AlreadyExistsError as error:
        if "status code: 409" in str(error):  # another put of it is under way
            raise TryFailed(Failure(errno.EEXIST, "another writer is writing the object", transient=True)) from None
        return False
    except NotImplementedError:
        raise TryFailed(_NO_CONDITIONAL_PUT) from None
    return True


def _delete(library: Any, *, keys: list[str]) -> None:
    try:
        library.delete(keys)
    except FileNotFoundError as error:
        if not object_is_missing(error):
            raise
        for key in keys if len(keys) > 1 else ():  # Google and Azure; S3 ignores missing objects
            _delete(library, keys=[key])


def _reported(pieces: Callable[[], Iterable[Buffer]], failed: list[KafkalogError]) -> Iterable[Buffer]:
    """Yield the pieces. Errors of `pieces` keep their sentence and are not retried."""
    try:
        yield from pieces()
    except OSError as error:
        raise TryFailed(Failure(error.errno or errno.EIO, error.strerror or str(error))) from None
    except KafkalogError as error:
        failed.append(error)
        raise TryFailed(Failure(errno.EIO, error.what)) from None


def _facts_of(meta: Any) -> FileFacts:
    """Return an object's facts by the library's metadata.

    A store without ETags gets a weak one of the modification time in seconds, since the header of a GET has no
    fractions. Azure's listings have ETags without quotes.
    """
    etag = meta["e_tag"]
    if not etag:
        etag = f'W/"{meta["last_modified"].replace(microsecond=0).isoformat()}"'
    elif not etag.endswith('"'):
        etag = f'"{etag}"'
    return FileFacts(meta["size"], etag)


def _is_same_version(facts: FileFacts, now: FileFacts) -> bool:
    """Return True if `facts` are of the present version; without a version, if the sizes are equal."""
    return facts.size == now.size and facts.version in ("", now.version)
