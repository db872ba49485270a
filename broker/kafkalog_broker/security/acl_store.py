"""ACLs of a broker, which are stored in `kafkalog.acls.json`:

{"version": 0, "generation": 3, "acls": [["TOPIC", "LITERAL", "orders", "User:alice", "*", "READ", "ALLOW"], ...]}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kafkalog_broker.config.state_copies import StateCopies
from kafkalog_broker.protocol.acls import WILDCARD, Operation, PatternType, Permission, ResourceType
from kafkalog_broker.security.acl import EVERYBODY, Acl, Pattern

FILE = "kafkalog.acls.json"


def acl_file(directories: Iterable[Path]) -> StateCopies[Collection[Acl]]:
    """Return the file of ACLs, with a copy in each directory."""
    return StateCopies(FILE, directories, _encode, _decode)


class AclStore:
    """ACLs in memory, by pattern and principal. Iteration returns all ACLs.

    `load` and `save` block; do not call them in the event loop. `save` and `change` are separate, so that a change
    takes effect only after it is on disk.

    Attributes:
        version: Number of changes so far; caches of decisions compare it.
    """

    def __init__(self) -> None:
        self._copies: StateCopies[Collection[Acl]] | None = None
        self._by_pattern: dict[Pattern, dict[str, list[Acl]]] = {}
        self._prefix_lengths: dict[ResourceType, Counter[int]] = {}
        self._all: dict[Acl, None] = {}
        self.version = 0

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._all

    def load(self, directories: Iterable[Path]) -> None:
        """Read the newest copy. Raises what StateCopies.load raises.

        An unreadable file is an error, because a broker without its ACLs might allow everything.
        """
        self._copies = acl_file(directories)
        self.change((), self._copies.load() or ())

    def save(self, acls: Collection[Acl]) -> None:
        """Write a complete set of ACLs to disk. Raises OSError if no copy was written.

        Call `load` first; without it, RuntimeError is raised.
        """
        if self._copies is None:
            raise RuntimeError("ACLs cannot be saved: they were not loaded")
        self._copies.save(acls)

    def change(self, removed: Iterable[Acl], added: Iterable[Acl]) -> None:
        """Change the ACLs in memory."""
        for _ in self.change_stepwise(removed, added):
            pass

    def change_stepwise(self, removed: Iterable[Acl], added: Iterable[Acl]) -> Generator[None, None, None]:
        """Change the ACLs in memory, and yield after each one so that the caller can pause."""
        for acl in removed:
            if acl in self._all:
                del self._all[acl]
                self._remove(acl)
                self.version += 1
                yield
        for acl in added:
            if acl not in self._all:
                self._all[acl] = None
                self._by_pattern.setdefault(acl.pattern, {}).setdefault(acl.principal, []).append(acl)
                if acl.pattern.type is PatternType.PREFIXED:
                    self._prefix_lengths.setdefault(acl.pattern.resource, Counter())[len(acl.pattern.name)] += 1
                self.version += 1
                yield

    def matching(self, resource: ResourceType, name: str) -> Iterator[Mapping[str, list[Acl]]]:
        """Return the ACLs that apply to a resource: for each matching pattern, a mapping by principal."""
        keys = [(PatternType.LITERAL, text) for text in dict.fromkeys((name, WILDCARD))]
        lengths = self._prefix_lengths.get(resource, ())
        keys += [(PatternType.PREFIXED, name[:length]) for length in lengths if length <= len(name)]
        return filter(None, (self._by_pattern.get(Pattern(resource, *key)) for key in keys))

    def of_principal(self, resource: ResourceType, principal: str) -> Iterator[Acl]:
        """Return the ACLs for a principal or EVERYBODY on any resource of a type."""
        for pattern, by_principal in self._by_pattern.items():
            if pattern.resource is resource:
                yield from by_principal.get(principal, ())
                yield from by_principal.get(EVERYBODY, ())

    def _remove(self, acl: Acl) -> None:
        by_principal = self._by_pattern[acl.pattern]
        by_principal[acl.principal].remove(acl)
        if not by_principal[acl.principal]:
            del by_principal[acl.principal]
        if not by_principal:
            del self._by_pattern[acl.pattern]
        if acl.pattern.type is PatternType.PREFIXED:
            lengths = self._prefix_lengths[acl.pattern.resource]
            lengths[len(acl.pattern.name)] -= 1
            if not lengths[len(acl.pattern.name)]:
                del lengths[len(acl.pattern.name)]


def _encode(acls: Collection[Acl]) -> dict[str, Any]:
    return {
        "acls": [
            [acl.pattern.resource.name, acl.pattern.type.name, acl.pattern.name, acl.principal, acl.host,
             acl.operation.name, acl.permission.name]
            for acl in acls
        ]
    }  # fmt: skip


def _decode(state: Mapping[str, Any]) -> Collection[Acl]:
    return [
        Acl(
            Pattern(ResourceType[resource], PatternType[kind], name), principal, host, Operation[operation],
            Permission[permission],
        )
        for resource, kind, name, principal, host, operation, permission in state["acls"]
    ]  # fmt: skip
