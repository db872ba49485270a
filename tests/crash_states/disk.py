"""Model of a disk that loses power: which directory trees POSIX allows after a crash at a point of a trace.

A trace is a list of events in one global order. A crash at point k means that the events [0, k) have happened. Bytes
and sizes of a file are safe after an fsync of that file that began after them and returned before k; a name is safe
after such an fsync of its directory. Every other operation may be present or absent (`StateKind`).
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

SECTOR = 512
"""Bytes that a disk writes at once; torn writes keep or lose whole sectors, or end at any byte."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes written to file `inode` at `offset`."""

    inode: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """File `inode` gets `size` bytes; a larger size adds zeros."""

    inode: int
    size: int


@dataclass(frozen=True, slots=True)
class Link:
    """`name` in `directory` now stands for `inode`: a new file, a new directory or another name of a file."""

    directory: int
    name: str
    inode: int


@dataclass(frozen=True, slots=True)
class Unlink:
    """`name` in `directory` is removed."""

    directory: int
    name: str


@dataclass(frozen=True, slots=True)
class Rename:
    """`inode` moves from one name to another, which it replaces. Atomic."""

    directory: int
    name: str
    new_directory: int
    new_name: str
    inode: int


@dataclass(frozen=True, slots=True)
class SyncBegin:
    """An fsync or fdatasync of `inode` begins; `call` pairs it with its end."""

    inode: int
    call: int


@dataclass(frozen=True, slots=True)
class SyncEnd:
    """The fsync `call` has returned without an error."""

    inode: int
    call: int


@dataclass(frozen=True, slots=True)
class Send:
    """A socket of the broker is about to send bytes [.., end) of its stream to the client at `port`."""

    port: int
    end: int


DataOperation = Write | Truncate
NameOperation = Link | Unlink | Rename
Operation = DataOperation | NameOperation
Event = Operation | SyncBegin | SyncEnd | Send


class StateKind(Enum):
    """How the operations that are not safe are chosen.

    NOTHING: none is present. EVERYTHING: all are. NAMES: all names, no unsafe bytes. ZEROS: all names and sizes; unsafe
    bytes are zero. PREFIX: the first ones in their order, the last of them torn. RANDOM: each is present or absent, and
    a write may be torn. FILES: all unsafe operations of a file or directory are present, or none of them.
    """

    NOTHING = "nothing"
    EVERYTHING = "everything"
    NAMES = "names"
    ZEROS = "zeros"
    PREFIX = "prefix"
    RANDOM = "random"
    FILES = "files"


@dataclass(frozen=True)
class Trace:
    """A recorded run. roots: inode of each root directory, by the name it has in a state. kinds: which inodes are
    directories. initial: content of files and entries of directories that were there, and safe, before the first
    event."""

    roots: Mapping[str, int]
    directories: frozenset[int]
    events: Sequence[Event]
    initial_files: Mapping[int, bytes] = field(default_factory=dict)
    initial_names: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


Tree = dict[str, bytes | None]
"""Paths below the roots with their bytes, None for a directory."""


def safe_until(events: Sequence[Event], point: int) -> dict[int, int]:
    """Return, by inode, the index before which all of its operations are safe at a crash at `point`."""
    begins: dict[int, int] = {}
    safe: dict[int, int] = {}
    for index, event in enumerate(events[:point]):
        if isinstance(event, SyncBegin):
            begins[event.call] = index
        elif isinstance(event, SyncEnd):
            safe[event.inode] = max(safe.get(event.inode, 0), begins[event.call])
    return safe


def unsafe_operations(events: Sequence[Event], point: int) -> list[int]:
    """Return the indexes of the operations before `point` that a crash may lose.

    A rename is safe with the directory of its new name.
    """
    safe = safe_until(events, point)
    return [
        index
        for index, event in enumerate(events[:point])
        if isinstance(event, Operation) and index >= safe.get(_owner(event), 0)
    ]


def _owner(operation: Operation) -> int:
    if isinstance(operation, DataOperation):
        return operation.inode
    return operation.new_directory if isinstance(operation, Rename) else operation.directory


Keep = Callable[[Write], bytes | list[tuple[int, bytes]]]


@dataclass(frozen=True)
class Choice:
    """Unsafe operations that a state has. torn: pieces (offset in the file, bytes) that are left of some writes."""

    present: frozenset[int]
    torn: Mapping[int, Sequence[tuple[int, bytes]]] = field(default_factory=dict)


def choose(events: Sequence[Event], point: int, kind: StateKind, rng: random.Random) -> Choice:
    """Choose which of the unsafe operations at `point` a state of that kind has."""
    unsafe = unsafe_operations(events, point)
    if kind is StateKind.NOTHING:
        return Choice(frozenset())
    if kind is StateKind.EVERYTHING:
        return Choice(frozenset(unsafe))
    names = [index for index in unsafe if isinstance(events[index], NameOperation)]
    if kind is StateKind.NAMES:
        return Choice(frozenset(names))
    if kind is StateKind.ZEROS:
        return Choice(frozenset(unsafe), {index: _zeros(write) for index, write in _writes(events, unsafe)})
    if kind is StateKind.PREFIX:
        kept = unsafe[: rng.randint(0, len(unsafe))]
        torn = {index: _torn(write, rng) for index, write in _writes(events, kept[-1:])}
        return Choice(frozenset(kept), torn)
    if kind is StateKind.FILES:
        chance = rng.choice((0.1, 0.5, 0.9))
        owners = sorted({_owner(events[index]) for index in unsafe})  # type: ignore[arg-type]
        lost = {owner for owner in owners if rng.random() >= chance}
        return Choice(_closed(events, [i for i in unsafe if _owner(events[i]) not in lost], unsafe))  # type: ignore[arg-type]
    chance = rng.choice((0.1, 0.5, 0.9, 0.98))
    kept = [index for index in unsafe if rng.random() < chance]
    torn = {index: _torn(write, rng) for index, write in _writes(events, kept) if rng.random() < 0.1}
    return Choice(_closed(events, kept, unsafe), torn)


def _writes(events: Sequence[Event], indexes: Sequence[int]) -> Iterator[tuple[int, Write]]:
    for index in indexes:
        event = events[index]
        if isinstance(event, Write):
            yield index, event


def _zeros(write: Write) -> list[tuple[int, bytes]]:
    return [(write.offset, bytes(len(write.data)))]


def _torn(write: Write, rng: random.Random) -> list[tuple[int, bytes]]:
    """Return what is left of a torn write: a prefix of any length, or some of its sectors."""
    if rng.random() < 0.5:
        return [(write.offset, write.data[: rng.randint(0, len(write.data))])]
    pieces = []
    at, end = write.offset, write.offset + len(write.data)
    while at < end:
        until = min(end, (at // SECTOR + 1) * SECTOR)
        if rng.random() < 0.5:
            pieces.append((at, write.data[at - write.offset : until - write.offset]))
        at = until
    return pieces


def _closed(events: Sequence[Event], kept: Sequence[int], unsafe: Sequence[int]) -> frozenset[int]:
    """Add the operations without which a kept one cannot have happened.

    An entry of a directory has a history, of which a disk holds one moment: an operation on a name is present only with
    all earlier ones on that name. Otherwise a file that was renamed away, and whose old name was used again, would be
    lost under both names.
    """
    present = set(kept)
    needed: set[tuple[int, str]] = set()
    for index in reversed(unsafe):
        event = events[index]
        if not isinstance(event, NameOperation):
            continue
        names = _names(event)
        if index in present or not needed.isdisjoint(names):
            present.add(index)
            needed.update(names)
    return frozenset(present)


def _names(operation: NameOperation) -> list[tuple[int, str]]:
    names = [(operation.directory, operation.name)]
    if isinstance(operation, Rename):
        names.append((operation.new_directory, operation.new_name))
    return names


def build_tree(trace: Trace, point: int, choice: Choice | None = None) -> Tree:
    """Return the tree after a crash at `point`: all safe operations and those of `choice`, all without one."""
    unsafe = frozenset[int]() if choice is None else frozenset(unsafe_operations(trace.events, point)) - choice.present
    torn = {} if choice is None else choice.torn
    names: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for directory, entries in trace.initial_names.items():
        names[directory] = dict(entries)
    contents = defaultdict(bytearray, {inode: bytearray(data) for inode, data in trace.initial_files.items()})
    for index, event in enumerate(trace.events[:point]):
        if index in unsafe:
            continue
        if isinstance(event, Write):
            for offset, data in torn.get(index, ((event.offset, event.data),)):
                _put(contents[event.inode], offset, data)
        elif isinstance(event, Truncate):
            content = contents[event.inode]
            del content[event.size :]
            content.extend(bytes(event.size - len(content)))
        elif isinstance(event, NameOperation):
            _apply_name(names, event)
    tree: Tree = {}
    for root, inode in trace.roots.items():
        _list(trace, names, contents, root, inode, tree)
    return tree


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if not data:
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _apply_name(names: defaultdict[int, dict[str, int]], event: NameOperation) -> None:
    if isinstance(event, Link):
        names[event.directory][event.name] = event.inode
    elif isinstance(event, Unlink):
        names[event.directory].pop(event.name, None)
    else:
        if names[event.directory].get(event.name) == event.inode:
            del names[event.directory][event.name]
        names[event.new_directory][event.new_name] = event.inode


def _list(
    trace: Trace,
    names: Mapping[int, Mapping[str, int]],
    contents: Mapping[int, bytearray],
    path: str,
    inode: int,
    tree: Tree,
) -> None:
    if inode not in trace.directories:
        tree[path] = bytes(contents.get(inode, b""))
        return
    tree[path] = None
    for name, child in names.get(inode, {}).items():
        _list(trace, names, contents, f"{path}/{name}", child, tree)


def read_tree(roots: Mapping[str, Path]) -> Tree:
    """Return the tree that is in the file system, by the names of `roots`."""
    tree: Tree = {}
    for name, root in roots.items():
        tree[name] = None
        for directory, directories, files in os.walk(root):
            relative = os.path.relpath(directory, root)
            prefix = name if relative == "." else f"{name}/{relative}"
            for child in directories:
                tree[f"{prefix}/{child}"] = None
            for child in files:
                tree[f"{prefix}/{child}"] = Path(directory, child).read_bytes()
    return tree


def write_tree(tree: Tree, target: Path) -> None:
    """Write a tree below `target`, which is made."""
    for path, content in tree.items():  # a directory comes before what is in it
        if content is None:
            (target / path).mkdir(parents=True, exist_ok=True)
        else:
            (target / path).write_bytes(content)


def differences(expected: Tree, found: Tree) -> list[str]:
    """Describe in which paths two trees differ."""
    texts = [f"{path}: missing" for path in expected.keys() - found.keys()]
    texts += [f"{path}: not expected" for path in found.keys() - expected.keys()]
    for path in expected.keys() & found.keys():
        one, other = expected[path], found[path]
        if one != other:
            if one is None or other is None:
                texts.append(f"{path}: a file and a directory")
            else:
                at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), -1)
                texts.append(f"{path}: {len(one)} bytes expected, {len(other)} found, first difference at {at}")
    return sorted(texts)
