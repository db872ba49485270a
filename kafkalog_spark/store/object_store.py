"""Store of buckets: S3 and its protocol elsewhere, Google Cloud Storage, Azure."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from kafkalog_spark.store.interface import FileFacts, Listing, OpenFile, parse_path
from kafkalog_spark.store.object_client import ObjectClient, RequestCounts, TryFailed, Wait, client_for
from kafkalog_spark.store.object_errors import REPLACED, truncated
from kafkalog_spark.store.object_file import Buffer, FetchBlock, ObjectFile
from kafkalog_spark.store.storage_options import StorageOptions

PAGE = 1000
"""Keys that a store lists in one request, at most: S3, Google and versitygw 1,000; Azure more."""


class ObjectListing:
    """Listing of a directory, by the answer of the store."""

    def __init__(self, files: Mapping[str, FileFacts], directories: Iterable[str]) -> None:
        self.files = files
        self._directories = frozenset(directories)
        self.names = [*files, *(name for name in self._directories if name not in files)]

    def is_directory(self, name: str) -> bool:
        """A name may be both; then it is a directory, as more lies below it."""
        return name in self._directories


@dataclass(frozen=True)
class ObjectStore:
    """Bucket, read with these options. bucket: of Azure `container@account.dfs.core.windows.net`."""

    scheme: str
    bucket: str
    options: StorageOptions = field(default_factory=StorageOptions)
    remote = True

    @property
    def client(self) -> ObjectClient:
        """The client that this process has for it. Raises OptionError."""
        return client_for(self.scheme, self.bucket, self.options)

    def counts(self) -> RequestCounts:
        """Requests and bytes of this process to this bucket with these options, until now."""
        return self.client.tally.counts()

    def list(self, directory: str, after: str = "") -> Listing:
        """Content of a directory. With `after` all levels below are listed from there on, because the library lists
        either from a key on or one level alone: cheap for a partition, which has no directories. It may be empty then,
        without an error.

        One request for 1,000 names. Raises FileNotFoundError, NotADirectoryError, PermissionError, OSError.
        """
        key = parse_path(directory).key
        files, directories, exists = self._listed(directory, key, after)
        if not exists and not after and key:
            try:
                self._head(key, directory)
            except FileNotFoundError:
                reason = "nothing in the bucket begins with this path"
                raise FileNotFoundError(errno.ENOENT, reason, directory) from None
            raise NotADirectoryError(errno.ENOTDIR, "is an object, not a directory", directory)
        return ObjectListing(files, directories)

    def _listed(self, directory: str, key: str, after: str) -> tuple[dict[str, FileFacts], set[str], bool]:
        """(files, directories, whether anything begins with the prefix)."""
        client = self.client
        prefix = f"{key}/" if key else ""
        if after:
            call = partial(_list_after, prefix=key, offset=prefix + after)
        else:
            call = partial(_list_level, prefix=key)
        objects, prefixes = client.ask(directory, call, in_parts=True, list=1)
        pages = -(-(len(objects) + len(prefixes)) // PAGE)
        client.tally.add(list=max(pages - 1, 0))
        files: dict[str, FileFacts] = {}
        directories = {found.rstrip("/").removeprefix(prefix) for found in prefixes}
        for found in objects:
            # an object of the directory's own name stands for it, when it was made by hand or by Hadoop
            name, below, _ = found["path"].removeprefix(prefix).partition("/")
            if found["path"] == key or name <= after:
                continue
            if below:
                directories.add(name)
            else:
                files[name] = _facts_of(found)
        return files, directories, bool(objects or prefixes)

    def open(self, path: str, facts: FileFacts | None = None) -> OpenFile:
        """Open an object. Without facts a HEAD finds them. Raises FileNotFoundError, IsADirectoryError, OSError."""
        key = parse_path(path).key
        if facts is None:
            facts = self._facts(key, path)
        closing = threading.Event()
        fetch = self.ranges(path, facts, wait=closing.wait)
        return ObjectFile(facts.size, fetch, changed=partial(self.has_changed, path, facts), closed=closing.set)

    def ranges(self, path: str, facts: FileFacts, *, wait: Wait | None = None) -> FetchBlock:
        """Function that fetches the bytes [begin, end) of one version of an object, in one GET: for ObjectFile, and for
        whoever makes blocks of another file of them. wait: see ObjectClient.ask."""
        key = parse_path(path).key
        client = self.client

        def fetch(begin: int, end: int) -> Buffer:
            data = client.ask(path, partial(_get, key=key, begin=begin, end=end, facts=facts), wait=wait, get=1)
            client.tally.add(bytes_read=len(data))
            return data

        return fetch

    def has_changed(self, path: str, facts: FileFacts) -> bool:
        """True if the object is another one than `facts` say, or gone. One HEAD. Raises OSError."""
        try:
            now = self._head(parse_path(path).key, path)
        except FileNotFoundError:
            return True
        return not _are_of(facts, now)

    def _facts(self, key: str, path: str) -> FileFacts:
        try:
            return self._head(key, path)
        except OSError as error:
            failed = error
        # the answer to a HEAD has no body: this one says more exactly what is wrong
        directory = failed.errno in (errno.ENOENT, errno.EACCES, errno.EINVAL) and self.exists(path)
        if directory and failed.errno == errno.ENOENT:
            raise IsADirectoryError(errno.EISDIR, "is a directory, not an object", path)
        raise failed

    def _head(self, key: str, path: str) -> FileFacts:
        found = self.client.ask(path, lambda store: store.head(key), head=1)
        return _facts_of(found)

    def read_all(self, path: str, most: int) -> bytes:
        """The first bytes of an object. One GET. Raises FileNotFoundError, OSError."""
        key = parse_path(path).key
        client = self.client
        data = client.ask(path, partial(_get_first, key=key, most=most), get=1)
        client.tally.add(bytes_read=len(data))
        return data

    def exists(self, directory: str) -> bool:
        """True if the directory is there. One LIST; a bucket's top is there when the bucket is. Raises OSError."""
        key = parse_path(directory).key
        found = self.client.ask(directory, lambda store: next(store.list(key, chunk_size=1), None), list=1)
        return bool(found) or not key


def _facts_of(meta: Any) -> FileFacts:
    """Facts of an object by the library. A store without ETags has the time of modification, like a weak one: in
    seconds, as the header of a GET has no more, and a listing may. Azure's listings have ETags without their quotes."""
    etag = meta["e_tag"]
    if not etag:
        etag = f'W/"{meta["last_modified"].replace(microsecond=0).isoformat()}"'
    elif not etag.endswith('"'):
        etag = f'"{etag}"'
    return FileFacts(meta["size"], etag)


def _are_of(facts: FileFacts, now: FileFacts) -> bool:
    """True if `facts` are of the version that is there now; without a version by the size."""
    return facts.size == now.size and facts.version in ("", now.version)


def _list_level(store: Any, *, prefix: str) -> tuple[list[Any], list[str]]:
    found = store.list_with_delimiter(prefix)
    return found["objects"], found["common_prefixes"]


def _list_after(store: Any, *, prefix: str, offset: str) -> tuple[list[Any], list[str]]:
    return [one for page in store.list(prefix, offset=offset, chunk_size=PAGE) for one in page], []


def _get(store: Any, *, key: str, begin: int, end: int, facts: FileFacts) -> memoryview:
    """The bytes [begin, end) of the version that `facts` are of. Raises TryFailed."""
    options: dict[str, Any] = {"range": (begin, end)}
    if facts.version and not facts.version.startswith("W/"):  # a weak one matches nothing (RFC 9110, 13.1.1)
        options["if_match"] = facts.version
    result = store.get(key, options=options)
    meta = result.meta
    # for stores that take no notice of If-Match
    if not _are_of(facts, _facts_of(meta)):
        raise TryFailed(REPLACED)
    data = memoryview(result.bytes())
    if len(data) != end - begin:
        raise TryFailed(truncated(end - begin, len(data)))
    return data


def _get_first(store: Any, *, key: str, most: int) -> bytes:
    """At most `most` bytes from the beginning on; the rest of a larger one is not fetched."""
    result = store.get(key)
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


# Listings with times, for whoever removes what is old. The clock is the store's: ages are differences of its times.


class AgedObject(NamedTuple):
    """An object below a directory. name: its path from the directory on. modified_s: seconds since 1970."""

    name: str
    size: int
    modified_s: float


def objects_below(
    store: ObjectStore, directory: str, enough: Callable[[AgedObject], bool] = lambda _: False
) -> list[AgedObject]:
    """All objects below a directory, at all levels, in the order of their names, up to the first that is `enough`; none
    where there is no such directory. One request for 1,000. Raises OSError."""
    prefix = f"{parse_path(directory).key}/".lstrip("/")
    client = store.client
    found: list[AgedObject] = client.ask(directory, partial(_walk, prefix=prefix, enough=enough), in_parts=True, list=1)
    client.tally.add(list=max(-(-len(found) // PAGE) - 1, 0))
    return found


def _walk(library: Any, *, prefix: str, enough: Callable[[AgedObject], bool]) -> list[AgedObject]:
    found: list[AgedObject] = []
    for page in library.list(prefix, chunk_size=PAGE):
        for one in page:
            name = one["path"].removeprefix(prefix)
            aged = AgedObject(name, one["size"], one["last_modified"].timestamp())
            if enough(aged):
                return found
            found.append(aged)
    return found


def modified(store: ObjectStore, path: str) -> float:
    """When the object was written, seconds since 1970. One HEAD. Raises FileNotFoundError, OSError."""
    key = parse_path(path).key
    found = store.client.ask(path, lambda library: library.head(key), head=1)
    return float(found["last_modified"].timestamp())
