"""Store of buckets in S3, stores with S3's protocol, Google Cloud Storage and Azure: listings, reads and writes."""

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

PAGE = 1000  # keys of one request that lists or deletes: the limit of S3 and Google; that of Azure is higher
PART = 16 << 20
"""Bytes of a part of a large object. S3 takes up to 10,000 parts of at least 5 MiB; 16 MiB allow 156 GiB, more than a
segment can have."""
_PARTS_AT_ONCE = 4
_UPLOADS_AT_ONCE = 2  # parts in flight of an object that is written in pieces: 48 MiB with the part being filled

_NO_CONDITIONAL_PUT = Failure(
    errno.ENOTSUP,
    "the store ignores If-None-Match, so two writers could overwrite each other: write to a store with conditional "
    "puts (AWS S3, Google, Azure, MinIO, Ceph, R2)",
)
_CANNOT_REPLACE = Failure(
    errno.ENOTSUP,
    "the store ignores If-Match, so an empty object cannot be replaced by one writer alone: delete it while no writer "
    "runs",
)


class AgedObject(NamedTuple):
    """An object below a directory, with its age.

    Attributes:
        name: Key relative to the directory.
        size: Bytes.
        modified_s: Time of the last change in seconds since 1970, by the store's clock.
    """

    name: str
    size: int
    modified_s: float


@dataclass(frozen=True)
class ObjectStore:
    """Store of one bucket, or of a container `container@account.dfs.core.windows.net` of Azure.

    All methods raise OSError, and OptionError if no client can be created from the options.
    """

    scheme: str
    bucket: str
    options: StorageOptions = field(default_factory=StorageOptions)
    is_remote = True

    @property
    def client(self) -> object_client.ObjectClient:
        """This process's client of the bucket."""
        return object_client.client_for(self.scheme, self.bucket, self.options)

    def counts(self) -> RequestCounts:
        """Return the counts of this process's requests to the bucket with these options."""
        return self.client.counts

    def list(self, directory: str, after: str = "") -> Listing:
        """See Store.list. Sends a request for every 1,000 names.

        The library lists either from a key on or only one level. So with `after` all levels below are listed, which
        costs nothing for a partition, since it has no directories. The listing may then be empty without an error.
        """
        key = parse_path(directory).key
        prefix = f"{key}/" if key else ""

        def call(library: Any) -> tuple[list[Any], list[str]]:
            if after:
                pages = library.list(key, offset=prefix + after, chunk_size=PAGE)
                return [meta for page in pages for meta in page], []
            level = library.list_with_delimiter(key)
            return level["objects"], level["common_prefixes"]

        objects, prefixes = self.client.request(directory, call, in_parts=True, list=1)
        pages = -(-(len(objects) + len(prefixes)) // PAGE)
        self.client.count(list=max(pages - 1, 0))
        files: dict[str, FileFacts] = {}
        directories = {path.rstrip("/").removeprefix(prefix) for path in prefixes}
        for meta in objects:
            # An object with the directory's own name is a marker that Hadoop or a console has created.
            name, slash, _ = meta["path"].removeprefix(prefix).partition("/")
            if meta["path"] == key or name <= after:
                continue
            if slash:
                directories.add(name)
            else:
                files[name] = _facts_of(meta)
        if key and not (objects or prefixes or after):
            try:
                self._head(directory)
            except FileNotFoundError:
                reason = "nothing in the bucket begins with this path"
                raise FileNotFoundError(errno.ENOENT, reason, directory) from None
            raise NotADirectoryError(errno.ENOTDIR, "is an object, not a directory", directory)
        return Listing.of(files, directories)

    def open(self, path: str, facts: FileFacts | None = None) -> OpenFile:
        """See Store.open. Sends a HEAD request if there are no facts."""
        if facts is None:
            facts = self._fetch_facts(path)
        closing = threading.Event()
        fetch = self.ranges(path, facts, wait=closing.wait)
        return ObjectFile(facts.size, fetch, has_changed=partial(self.has_changed, path, facts), on_close=closing.set)

    def ranges(self, path: str, facts: FileFacts, *, wait: Wait | None = None) -> FetchBlock:
        """See Store.ranges. Each range is one GET request. wait: see ObjectClient.request."""
        key = parse_path(path).key
        client = self.client

        def fetch(begin: int, end: int) -> Buffer:
            options: dict[str, Any] = {"range": (begin, end)}
            if facts.version and not facts.version.startswith("W/"):  # a weak ETag never matches (RFC 9110, 13.1.1)
                options["if_match"] = facts.version

            def get(library: Any) -> memoryview:
                result = library.get(key, options=options)
                if not _is_same_version(facts, _facts_of(result.meta)):  # the store may ignore If-Match
                    raise TryFailed(REPLACED)
                data = memoryview(result.bytes())
                if len(data) != end - begin:
                    raise TryFailed(truncated(end - begin, len(data)))
                return data

            data = client.request(path, get, wait=wait, get=1)
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

    def _fetch_facts(self, path: str) -> FileFacts:
        try:
            return self._head(path)
        except OSError as error:
            failed = error
        # The response to a HEAD request has no body, so a LIST request finds the cause.
        directory = failed.errno in (errno.ENOENT, errno.EACCES, errno.EINVAL) and self.exists(path)
        if directory and failed.errno == errno.ENOENT:
            raise IsADirectoryError(errno.EISDIR, "is a directory, not an object", path)
        raise failed

    def _fetch_metadata(self, path: str) -> Any:
        key = parse_path(path).key
        return self.client.request(path, lambda library: library.head(key), head=1)

    def _head(self, path: str) -> FileFacts:
        return _facts_of(self._fetch_metadata(path))

    def modified(self, path: str) -> float:
        """Return the time of the object's last change, in seconds since 1970 by the store's clock. One HEAD request."""
        return float(self._fetch_metadata(path)["last_modified"].timestamp())

    def read_all(self, path: str, max_bytes: int) -> bytes:
        """See Store.read_all. One GET."""
        key = parse_path(path).key

        def get(library: Any) -> bytes:
            result = library.get(key)
            expected = min(result.meta["size"], max_bytes)
            if expected == result.meta["size"]:
                data = bytes(result.bytes())
            else:
                data = b""
                for piece in result.stream(min_chunk_size=min(max_bytes, 1 << 20)):
                    data += piece
                    if len(data) >= expected:
                        break
                data = data[:expected]
            if len(data) != expected:
                raise TryFailed(truncated(expected, len(data)))
            return data

        data = self.client.request(path, get, get=1)
        self.client.count(bytes_read=len(data))
        return data

    def exists(self, directory: str) -> bool:
        """Return True if the directory exists; the top of a bucket if the bucket exists. One LIST."""
        key = parse_path(directory).key
        page = self.client.request(directory, lambda library: next(library.list(key, chunk_size=1), None), list=1)
        return bool(page) or not key

    def objects_under(
        self, directory: str, stop_at: Callable[[AgedObject], bool] = lambda _: False
    ) -> Sequence[AgedObject]:
        """Return the objects below a directory, at all levels, sorted by name, before the first that is `stop_at`.

        The result is empty if the directory is missing. Makes a request for every 1,000 objects.
        """
        prefix = f"{parse_path(directory).key}/".lstrip("/")

        def walk(library: Any) -> list[AgedObject]:
            found: list[AgedObject] = []
            for meta in chain.from_iterable(library.list(prefix, chunk_size=PAGE)):
                name = meta["path"].removeprefix(prefix)
                aged = AgedObject(name, meta["size"], meta["last_modified"].timestamp())
                if stop_at(aged):
                    break
                found.append(aged)
            return found

        found = self.client.request(directory, walk, in_parts=True, list=1)
        self.client.count(list=max(-(-len(found) // PAGE) - 1, 0))
        return found

    def put(self, path: str, data: Buffer) -> None:
        """Write an object, in parts if it is large. Readers see it only when it is complete."""
        key, is_large = parse_path(path).key, len(data) > PART

        def put(library: Any) -> None:
            library.put(key, bytes(data), use_multipart=is_large, chunk_size=PART, max_concurrency=_PARTS_AT_ONCE)

        parts = -(-len(data) // PART) + 2 if is_large else 1  # with the requests that begin and end the upload
        self.client.request(path, put, in_parts=is_large, put=parts)
        self.client.count(bytes_written=len(data))

    def put_if_absent(self, path: str, data: Buffer) -> bool:
        """Write an object unless it exists.

        A try whose response was lost may have written the object, so the next try compares the object with `data`.
        Therefore concurrent writers must not write the same bytes.

        Returns:
            False if the object existed. Only one of several concurrent writers gets True.
        """
        key = parse_path(path).key
        tries = 0

        def create(library: Any) -> bool:
            nonlocal tries
            tries += 1
            return _create(library, key, data)

        was_created = self.client.request(path, create, put=1)
        if was_created:
            self.client.count(bytes_written=len(data))
        elif tries > 1:
            return self.read_all(path, len(data) + 1) == bytes(data)
        return was_created

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
        """Replace an empty object.

        Returns:
            False if the object is no longer empty, or missing. Only one of several concurrent writers gets True.
        """
        key = parse_path(path).key
        try:
            meta = self._fetch_metadata(path)
        except FileNotFoundError:
            return False
        if meta["size"]:
            return False
        version = {name: meta[name] for name in ("e_tag", "version") if meta[name] is not None}

        def put(library: Any) -> bool:
            from obstore.exceptions import PreconditionError

            try:
                library.put(key, bytes(data), mode=version, use_multipart=False)
            except PreconditionError:
                return False
            except NotImplementedError:
                raise TryFailed(_CANNOT_REPLACE) from None
            return True

        was_replaced = self.client.request(path, put, put=1)
        if was_replaced:
            self.client.count(bytes_written=len(data))
        return was_replaced

    def upload(self, path: str, pieces: Callable[[], Iterable[Buffer]], size: int) -> None:
        """Write an object that is too large for memory, in parts. Readers see it only when it is complete.

        The write has no condition, since the library has none for multipart uploads.

        Args:
            path: Path of the object.
            pieces: Returns the bytes of the object. Called for each try. Its KafkalogErrors are raised unchanged.
            size: Size of the object in bytes.
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
            self.client.request(path, write, in_parts=True, put=parts)
        except OSError:
            if failed:
                raise failed[-1] from None
            raise
        self.client.count(bytes_written=size)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects. Missing ones are ignored."""
        keys = [parse_path(path).key for path in paths]
        for begin in range(0, len(keys), PAGE):
            self.client.request(paths[begin], partial(_delete, keys=keys[begin : begin + PAGE]), delete=1)


def _create(library: Any, key: str, data: Buffer) -> bool:
    """Put an object unless it exists; return False if it does. Raises TryFailed and the library's exceptions."""
    from obstore.exceptions import AlreadyExistsError

    try:
        library.put(key, bytes(data), mode="create", use_multipart=False)
    except AlreadyExistsError as error:
        if "status code: 409" in str(error):  # another put of the object is in progress
            raise TryFailed(Failure(errno.EEXIST, "another writer is writing the object", is_transient=True)) from None
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
    """Yield the pieces. Convert their errors to TryFailed, so that they keep their text and are not retried."""
    try:
        yield from pieces()
    except OSError as error:
        raise TryFailed(Failure(error.errno or errno.EIO, error.strerror or str(error))) from None
    except KafkalogError as error:
        failed.append(error)
        raise TryFailed(Failure(errno.EIO, error.what)) from None


def _facts_of(meta: Any) -> FileFacts:
    """Return the facts in the library's metadata of an object.

    If a store has no ETags, the version is a weak ETag made of the modification time in whole seconds, because the
    header of a GET response has no fractions. Azure's listings have ETags without quotes.
    """
    etag = meta["e_tag"]
    if not etag:
        etag = f'W/"{meta["last_modified"].replace(microsecond=0).isoformat()}"'
    elif not etag.endswith('"'):
        etag = f'"{etag}"'
    return FileFacts(meta["size"], etag)


def _is_same_version(facts: FileFacts, now: FileFacts) -> bool:
    """Return True if both facts have the same size and version. Without a version only the sizes are compared."""
    return facts.size == now.size and facts.version in ("", now.version)
