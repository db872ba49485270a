"""Store of buckets (S3 and its protocol elsewhere, Google Cloud Storage, Azure), and its files.

A file's bytes are fetched in blocks, ahead of whoever reads it: by one function, FetchBlock, of a range of an object or
of chunks of a tiered segment that are decoded in the threads that fetch. Small reads at any place get a piece around
them, which is kept for the reads that follow: headers, proofs of index entries, the end of a log. What `expect`
announces is fetched in large blocks, several at once.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from kafkalog_spark.store import object_client
from kafkalog_spark.store.interface import FileFacts, Listing, OpenFile, parse_path
from kafkalog_spark.store.object_client import RequestCounts, Wait
from kafkalog_spark.store.storage_options import StorageOptions

# Threads that fetch ahead, and how much they may hold: shared by all files of a process.
#
# A process that was forked begins with threads and a budget of its own.

T = TypeVar("T")

WORKER_BYTES = 256 << 20
"""Bytes fetched ahead, or being fetched, of all files of a process: a worker may take 300 MB, and decodes too."""
FILE_BYTES = 32 << 20  # such bytes of one file: the block that is read, the one before it, and two ahead
THREADS = 16  # four files of a task with four requests each: a request waits for the network, not for a core


class ReadAhead:
    """The threads of a process, and how many bytes they may hold. left: how many more; below 0 where somebody waits."""

    def __init__(self, size: int = WORKER_BYTES) -> None:
        self.left = size
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="kafkalog-fetch")

    def take(self, size: int, *, must: bool = False) -> bool:
        """Take `size` bytes; False when there are not as many. must: what somebody waits for is taken in any case."""
        with self._lock:
            if self.left < size and not must:
                return False
            self.left -= size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self.left += size

    def submit(self, work: Callable[[], T]) -> Future[T]:
        return self._threads.submit(work)


_lock = threading.Lock()
_made: ReadAhead | None = None


def read_ahead() -> ReadAhead:
    """The one of this process."""
    global _made
    with _lock:
        if _made is None:
            _made = ReadAhead()
        return _made


def _forget() -> None:
    """In a fork: threads are not inherited, and a lock may have been held by one of them."""
    global _lock, _made
    _lock, _made = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


Buffer = bytes | bytearray | memoryview
FetchBlock = Callable[[int, int], Buffer]
"""The bytes [begin, end) of the file, as many. Called by several threads at once. Raises OSError."""

PIECE = 128 << 10
"""Bytes fetched for a small read. On S3 the first byte takes as long as the next megabyte, so more would cost nothing
there; but many of these reads need 61 bytes, and over a slow line or in a worker's memory it does cost."""
NEAR = 1 << 20
"""A read that begins at most so far after the last piece goes on from it: the gap is as fast as another request."""
BLOCK = 8 << 20  # bytes of a block fetched ahead
FIRST_BLOCK = 2 << 20  # bytes of the first one: its rows should be seen soon. The next ones double.
IN_FLIGHT = 2  # blocks fetched ahead of the one that is read
KEPT = 8 << 20  # bytes of pieces kept


class _Fetched:
    """Bytes [begin, end) that were fetched, or are being fetched."""

    __slots__ = ("_bytes", "_future", "begin", "end")

    def __init__(self, begin: int, end: int, source: Future[Buffer] | Buffer) -> None:
        self.begin, self.end = begin, end
        self._future = source if isinstance(source, Future) else None
        self._bytes = None if isinstance(source, Future) else memoryview(source)

    def bytes(self) -> memoryview:
        """Waits for them. Raises OSError, each time."""
        if self._bytes is None:
            assert self._future is not None
            self._bytes = memoryview(self._future.result())
        return self._bytes

    def holds(self, position: int) -> bool:
        return self.begin <= position < self.end

    def forget(self, shared: ReadAhead) -> None:
        """Cancel what has not begun; what has is given up when it arrives."""
        if self._future is not None:
            size = self.end - self.begin
            self._future.cancel()
            self._future.add_done_callback(lambda _: shared.give_back(size))


class ObjectFile:
    """An open file of `size` bytes: see OpenFile; `has_changed` is a request. align: blocks begin at multiples of it,
    and end there or at the end of the file (the chunk size of a tiered segment, bytes). block: bytes of a block fetched
    ahead. changed: whether the file is another one by now. closed: called by `close`."""

    def __init__(
        self,
        size: int,
        fetch: FetchBlock,
        *,
        changed: Callable[[], bool],
        closed: Callable[[], None] = lambda: None,
        align: int = 1,
        block: int = BLOCK,
    ) -> None:
        self.size = size
        self._fetch = fetch
        self._changed = changed
        self._closed = closed
        self._align = align
        self._block = block
        self._pieces: list[_Fetched] = []  # the one used last comes last
        self._run = PIECE  # bytes of the next piece, if it goes on from the last one
        self._last_end = -1
        self._blocks: deque[_Fetched] = deque()  # without a hole between them
        self._next = self._until = 0  # what is announced and not asked for yet
        self._next_size = FIRST_BLOCK
        self._ahead = 1
        self._is_closed = False
        self._shared = read_ahead()

    def read(self, position: int, size: int) -> bytes:
        end = min(position + size, self.size)
        if position >= end:
            return b""
        piece = self._piece_at(position, end)
        if piece.end >= end:
            return bytes(piece.bytes()[position - piece.begin : end - piece.begin])
        target = bytearray(end - position)
        self.read_into(position, memoryview(target))
        return bytes(target)

    def read_into(self, position: int, target: memoryview) -> int:
        end = min(position + len(target), self.size)
        if end - position > BLOCK and not self._blocks and self._next >= self._until:
            self.expect(position, end)
        at = position
        while at < end:
            piece = self._piece_at(at, end)
            until = min(end, piece.end)
            target[at - position : until - position] = piece.bytes()[at - piece.begin : until - piece.begin]
            at = until
        return max(end - position, 0)

    def has_changed(self) -> bool:
        return self._changed()

    def expect(self, position: int, until: int) -> None:
        """[position, until) is going to be read from its beginning on: fetch ahead, and nothing from `until` on."""
        until = min(until, self.size)
        if self._blocks and self._blocks[0].begin <= position <= self._next:
            self._until = max(until, self._until)
        else:
            self._forget_blocks()
            while ends := [piece.end for piece in self._pieces if piece.holds(position)]:
                position = max(ends)
            self._next, self._until = self._down(position), until
            self._next_size, self._ahead = FIRST_BLOCK, 1
        self._fetch_ahead()

    def close(self) -> None:
        """Give up what is being fetched, and forget what was."""
        self._is_closed = True
        self._closed()
        self._forget_blocks()
        self._pieces.clear()

    def __del__(self) -> None:
        # whoever forgot to close it: the budget is everybody's
        self._forget_blocks()

    def _piece_at(self, position: int, end: int) -> _Fetched:
        """A piece that holds the byte at `position`; `end` is how far the reader wants to go."""
        if self._is_closed:
            raise ValueError("read of a closed file")
        if self._blocks and self._blocks[0].begin <= position < self._next:
            return self._block_at(position)
        for slot in range(len(self._pieces) - 1, -1, -1):
            if self._pieces[slot].holds(position):
                piece = self._pieces.pop(slot)
                self._pieces.append(piece)
                return piece
        if self._next <= position < min(self._until, self._next + BLOCK):
            while self._next <= position:
                self._next_block(must=True)
            return self._block_at(position)
        if position < self._until and self._next < position and end - position > PIECE:
            self.expect(position, self._until)  # it has jumped ahead
            if self._blocks:
                return self._block_at(position)
        return self._small_piece(position, end)

    # What was announced.

    def _block_at(self, position: int) -> _Fetched:
        """The block that holds the byte at `position`; the one before it is kept for a reader that looks back, blocks
        before that are not."""
        number = next(number for number, block in enumerate(self._blocks) if block.holds(position))
        for _ in range(number - 1):
            self._blocks.popleft().forget(self._shared)
            self._ahead = min(self._ahead + 1, IN_FLIGHT)
            number -= 1
        self._fetch_ahead(number)
        return self._blocks[number]

    def _fetch_ahead(self, reading: int = 0) -> None:
        while self._next < self._until and len(self._blocks) - reading <= self._ahead and self._next_block():
            pass

    def _next_block(self, *, must: bool = False) -> bool:
        """Ask for the next block; False when there is no room for it."""
        begin = self._next
        end = self._up(min(begin + self._next_size, self._until))
        if self._until - end < self._next_size // 2:
            end = self._up(self._until)  # no request for a small rest
        held = sum(block.end - block.begin for block in self._blocks)
        if not must and held + end - begin > FILE_BYTES:
            return False
        if not self._shared.take(end - begin, must=must or not self._blocks):
            return False
        self._blocks.append(_Fetched(begin, end, self._shared.submit(lambda: self._fetch(begin, end))))
        self._next = end
        self._next_size = min(self._next_size * 2, self._block)
        return True

    def _forget_blocks(self) -> None:
        for block in self._blocks:
            block.forget(self._shared)
        self._blocks.clear()
        self._next = self._until = 0

    # Everything else.

    def _small_piece(self, position: int, wanted: int) -> _Fetched:
        """Fetch a piece with the byte at `position`, by this thread."""
        near = self._last_end <= position <= self._last_end + NEAR and self._last_end >= 0
        self._run = min(self._run * 2, BLOCK) if near else PIECE
        end = min(max(min(wanted, position + BLOCK), position + self._run), self.size)
        begin = self._last_end if near and self._last_end + self._run > position else position
        if end == self.size:
            begin = min(begin, max(end - self._run, 0))  # who reads the end looks around there
        fetched = [*self._pieces, *self._blocks]
        end = min((piece.begin for piece in fetched if position < piece.begin < end), default=end)
        begin = max((piece.end for piece in fetched if begin < piece.end <= position), default=begin)
        begin, end = self._down(begin), self._up(end)
        piece = _Fetched(begin, end, self._fetch(begin, end))
        self._pieces.append(piece)
        while sum(piece.end - piece.begin for piece in self._pieces[:-1]) > KEPT:
            del self._pieces[0]
        self._last_end = end
        return piece

    def _down(self, position: int) -> int:
        return position - position % self._align

    def _up(self, position: int) -> int:
        return min(position + -position % self._align, self.size)


PAGE = 1000  # keys that a store lists in one request, at most: S3, Google and versitygw 1,000; Azure more


@dataclass(frozen=True)
class ObjectStore:
    """Bucket, read with these options. bucket: of Azure `container@account.dfs.core.windows.net`."""

    scheme: str
    bucket: str
    options: StorageOptions = field(default_factory=StorageOptions)
    remote = True

    @property
    def client(self) -> object_client.ObjectClient:
        """The client that this process has for it. Raises OptionError."""
        return object_client.client_for(self.scheme, self.bucket, self.options)

    def counts(self) -> RequestCounts:
        """Requests and bytes of this process to this bucket with these options, until now."""
        return self.client.counts

    def list(self, directory: str, after: str = "") -> Listing:
        """Content of a directory. With `after` all levels below are listed from there on, because the library lists
        either from a key on or one level alone: cheap for a partition, which has no directories. It may be empty then,
        without an error.

        One request for 1,000 names. Raises FileNotFoundError, NotADirectoryError, PermissionError, OSError.
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
            # an object of the directory's own name stands for it, when it was made by hand or by Hadoop
            name, below, _ = found["path"].removeprefix(prefix).partition("/")
            if found["path"] == key or name <= after:
                continue
            if below:
                directories.add(name)
            else:
                files[name] = _facts_of(found)
        if key and not (objects or prefixes or after):
            try:
                self._head(key, directory)
            except FileNotFoundError:
                reason = "nothing in the bucket begins with this path"
                raise FileNotFoundError(errno.ENOENT, reason, directory) from None
            raise NotADirectoryError(errno.ENOTDIR, "is an object, not a directory", directory)
        return Listing.of(files, directories)

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
            options: dict[str, Any] = {"range": (begin, end)}
            if facts.version and not facts.version.startswith("W/"):  # a weak one matches nothing (RFC 9110, 13.1.1)
                options["if_match"] = facts.version

            def get(library: Any) -> memoryview:
                result = library.get(key, options=options)
                if not _are_of(facts, _facts_of(result.meta)):  # for stores that take no notice of If-Match
                    raise object_client.TryFailed(object_client.REPLACED)
                data = memoryview(result.bytes())
                if len(data) != end - begin:
                    raise object_client.TryFailed(object_client.truncated(end - begin, len(data)))
                return data

            data = client.ask(path, get, wait=wait, get=1)
            client.count(bytes_read=len(data))
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
        return _facts_of(self.client.ask(path, lambda library: library.head(key), head=1))

    def read_all(self, path: str, most: int) -> bytes:
        """The first bytes of an object. One GET. Raises FileNotFoundError, OSError."""
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
                raise object_client.TryFailed(object_client.truncated(wanted, len(data)))
            return data

        data = self.client.ask(path, get, get=1)
        self.client.count(bytes_read=len(data))
        return data

    def exists(self, directory: str) -> bool:
        """True if the directory is there. One LIST; a bucket's top is there when the bucket is. Raises OSError."""
        key = parse_path(directory).key
        page = self.client.ask(directory, lambda library: next(library.list(key, chunk_size=1), None), list=1)
        return bool(page) or not key


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

    def walk(library: Any) -> list[AgedObject]:
        found: list[AgedObject] = []
        for meta in chain.from_iterable(library.list(prefix, chunk_size=PAGE)):
            name = meta["path"].removeprefix(prefix)
            aged = AgedObject(name, meta["size"], meta["last_modified"].timestamp())
            if enough(aged):
                break
            found.append(aged)
        return found

    found = store.client.ask(directory, walk, in_parts=True, list=1)
    store.client.count(list=max(-(-len(found) // PAGE) - 1, 0))
    return found


def modified(store: ObjectStore, path: str) -> float:
    """When the object was written, seconds since 1970. One HEAD. Raises FileNotFoundError, OSError."""
    key = parse_path(path).key
    meta = store.client.ask(path, lambda library: library.head(key), head=1)
    return float(meta["last_modified"].timestamp())
