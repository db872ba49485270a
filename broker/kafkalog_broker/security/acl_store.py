"""ACLs in memory, by what they are about, and in a file, as the users of SCRAM are kept: `kafkalog.acls.json`.

    {"version": 0, "generation": 3, "acls": [["TOPIC", "LITERAL", "orders", "User:alice", "*", "READ", "ALLOW"], ...]}

Kafka keeps them in its controllers' metadata log.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from pathlib import Path

from kafkalog_broker.protocol.acls import WILDCARD, Operation, PatternType, Permission, ResourceType
from kafkalog_broker.security.acl import EVERYBODY, Acl, Pattern
from kafkalog_broker.security.kept_copies import KeptCopies
from kafkalog_spark.errors import CorruptFile, UnsupportedFormat

FILE = "kafkalog.acls.json"
VERSION = 0


class AclStore:
    """`load` and `save` are for another thread than the event loop's. `version` rises with every change."""

    def __init__(self) -> None:
        self._kept: KeptCopies[Collection[Acl]] | None = None
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
        """As KeptCopies.load. A broker that forgot its ACLs might let everybody in."""
        self._kept = KeptCopies(FILE, directories, parse, dump)
        self.change((), self._kept.load() or ())

    def save(self, acls: Collection[Acl]) -> None:
        """All that are to be there. As KeptCopies.save."""
        if self._kept is not None:
            self._kept.save(acls)

    def change(self, removed: Iterable[Acl], added: Iterable[Acl]) -> None:
        """In memory, from now on."""
        for _ in self.changing(removed, added):
            pass

    def changing(self, removed: Iterable[Acl], added: Iterable[Acl]) -> Generator[None, None, None]:
        """As `change`, in steps: each ACL holds from its step on."""
        for acl in removed:
            if self._all.pop(acl, acl) is None:
                self._forget(acl)
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

    def about(self, resource: ResourceType, name: str) -> Iterator[Mapping[str, list[Acl]]]:
        """The ACLs that apply to a resource, by principal: one mapping for each pattern that matches it."""
        found = self._by_pattern.get(Pattern(resource, PatternType.LITERAL, name))
        if found:
            yield found
        if name != WILDCARD:
            found = self._by_pattern.get(Pattern(resource, PatternType.LITERAL, WILDCARD))
            if found:
                yield found
        for length in self._prefix_lengths.get(resource, ()):
            if length <= len(name):
                found = self._by_pattern.get(Pattern(resource, PatternType.PREFIXED, name[:length]))
                if found:
                    yield found

    def of_principal(self, resource: ResourceType, principal: str) -> Iterator[Acl]:
        """Those about any resource of a type, for a principal or everybody."""
        for pattern, by_principal in self._by_pattern.items():
            if pattern.resource is resource:
                yield from by_principal.get(principal, ())
                yield from by_principal.get(EVERYBODY, ())

    def _forget(self, acl: Acl) -> None:
        of_pattern = self._by_pattern[acl.pattern]
        of_pattern[acl.principal].remove(acl)
        if not of_pattern[acl.principal]:
            del of_pattern[acl.principal]
        if not of_pattern:
            del self._by_pattern[acl.pattern]
        if acl.pattern.type is PatternType.PREFIXED:
            lengths = self._prefix_lengths[acl.pattern.resource]
            lengths[len(acl.pattern.name)] -= 1
            if not lengths[len(acl.pattern.name)]:
                del lengths[len(acl.pattern.name)]


def dump(generation: int, acls: Collection[Acl]) -> bytes:
    rows = [
        [acl.pattern.resource.name, acl.pattern.type.name, acl.pattern.name, acl.principal, acl.host,
         acl.operation.name, acl.permission.name]
        for acl in acls
    ]  # fmt: skip
    text = ",\n".join(json.dumps(row) for row in rows)
    return f'{{"version": {VERSION}, "generation": {generation}, "acls": [\n{text}\n]}}\n'.encode("ascii")


def parse(data: bytes) -> tuple[int, Collection[Acl]]:
    """Raises CorruptFile for anything but what `dump` writes, UnsupportedFormat for a later version."""
    try:
        content = json.loads(data)
        version, generation = content["version"], content["generation"]
        if version != VERSION:
            raise UnsupportedFormat(f"version {version} of {FILE}, only {VERSION} is known")
        acls = [_acl(*row) for row in content["acls"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(f"this is not the JSON that was written: {type(error).__name__}") from None
    if type(generation) is not int:
        raise CorruptFile("expected version, generation and acls")
    return generation, acls


def _acl(resource: str, kind: str, name: str, principal: str, host: str, operation: str, permission: str) -> Acl:
    return Acl(
        Pattern(ResourceType[resource], PatternType[kind], name), principal, host, Operation[operation],
        Permission[permission],
    )  # fmt: skip
