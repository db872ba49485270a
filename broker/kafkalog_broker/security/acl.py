"""ACLs, and filters of them. Values and decisions only (StandardAcl, AclBindingFilter)."""

from __future__ import annotations

import enum
import ipaddress
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kafkalog_broker.config.state_copies import StateCopies
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType

EVERYBODY = "User:*"

_IMPLYING = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
"""Operations whose permission implies that of the first. A denial implies nothing."""


class Pattern(NamedTuple):
    resource: ResourceType
    type: PatternType
    name: str


class Acl(NamedTuple):
    """principal: `User:alice`, or EVERYBODY. host: an address, or `*`."""

    pattern: Pattern
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def speaks_of(self, host: str, operation: Operation) -> bool:
        """True if it decides about that operation from there, for its principal and its pattern."""
        if self.host not in (WILDCARD, host) and normal_host(self.host) != normal_host(host):
            return False
        if self.operation in (Operation.ALL, operation):
            return True
        return self.permission is Permission.ALLOW and self.operation in _IMPLYING.get(operation, ())


@dataclass(frozen=True, slots=True)
class AclFilter:
    """None, and ANY: whatever it is. The pattern type MATCH: what applies to a resource of that name."""

    resource: ResourceType = ResourceType.ANY
    name: str | None = None
    type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        pattern = acl.pattern
        return (
            self.resource in (ResourceType.ANY, pattern.resource)
            and self._matches_name(pattern)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, pattern: Pattern) -> bool:
        if self.type not in (PatternType.ANY, PatternType.MATCH, pattern.type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.type is not PatternType.MATCH:
            return False
        if pattern.type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name == WILDCARD


@lru_cache(4096)
def normal_host(text: str) -> str:
    """An address in one form: Java writes `0:0:0:0:0:0:0:1` where Python has `::1`. What is none stays."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


E = TypeVar("E", bound=enum.IntEnum)


def acl_of(asked: Any) -> Acl:
    """The ACL of a creation in a request. Raises BrokerError (INVALID_REQUEST), and UNKNOWN_SERVER_ERROR for what only
    filters have: that refuses the request as a whole."""
    resource, pattern = _of(ResourceType, asked.resource_type), _of(PatternType, asked.resource_pattern_type)
    operation, permission = _of(Operation, asked.operation), _of(Permission, asked.permission_type)
    for value in (resource, pattern, operation, permission):
        if value.name in ("ANY", "MATCH"):
            raise BrokerError(ErrorCode.unknown_server_error, f"an ACL has no {type(value).__name__} {value.name}")
    name = asked.resource_name
    if resource is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise BrokerError(ErrorCode.invalid_request, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise BrokerError(ErrorCode.invalid_request, "Invalid empty resource name")
    for label, unknown in (
        ("resourceType", resource), ("patternType", pattern), ("operation", operation), ("permissionType", permission)
    ):  # fmt: skip
        if not unknown:
            raise BrokerError(ErrorCode.invalid_request, f"Invalid {label} UNKNOWN")
    return Acl(Pattern(resource, pattern, name), asked.principal, asked.host, operation, permission)


def filter_of(asked: Any) -> AclFilter:
    """Of a request to describe, or of a deletion."""
    return AclFilter(
        _of(ResourceType, asked.resource_type_filter),
        asked.resource_name_filter,
        _of(PatternType, getattr(asked, "pattern_type_filter", PatternType.LITERAL)),
        asked.principal_filter,
        asked.host_filter,
        _of(Operation, asked.operation),
        _of(Permission, asked.permission_type),
    )


def check_deletion(wanted: AclFilter) -> None:
    """Raises BrokerError (INVALID_REQUEST) for a filter with a number that nobody knows."""
    if not (wanted.resource and wanted.type):
        raise BrokerError(ErrorCode.invalid_request, "Unknown patternFilter.")
    if not (wanted.operation and wanted.permission):
        raise BrokerError(ErrorCode.invalid_request, "Unknown entryFilter.")


def _of(kind: type[E], number: int) -> E:
    return kind(number) if number in kind._value2member_map_ else kind(0)


# ACLs in memory, by what they are about, and in the file `kafkalog.acls.json`:
#
#     {"version": 0, "generation": 3, "acls": [["TOPIC", "LITERAL", "orders", "User:alice", "*", "READ", "ALLOW"],
#       ...]}

FILE = "kafkalog.acls.json"


def acl_file(directories: Iterable[Path]) -> StateCopies[Collection[Acl]]:
    return StateCopies(FILE, directories, _encoded, _decoded)


class AclStore:
    """`load` and `save` are for another thread than the event loop's. `version` rises with every change."""

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
        """Read the newest copy, as StateCopies.load. A broker that forgot its ACLs might let everybody in."""
        self._copies = acl_file(directories)
        self.change((), self._copies.load() or ())

    def save(self, acls: Collection[Acl]) -> None:
        """All that are to be there."""
        if self._copies is not None:
            self._copies.save(acls)

    def change(self, removed: Iterable[Acl], added: Iterable[Acl]) -> None:
        """In memory, from now on."""
        for _ in self.changing(removed, added):
            pass

    def changing(self, removed: Iterable[Acl], added: Iterable[Acl]) -> Generator[None, None, None]:
        """Change the ACLs in steps: each holds from its step on."""
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
        names = [(PatternType.LITERAL, text) for text in dict.fromkeys((name, WILDCARD))]
        lengths = self._prefix_lengths.get(resource, ())
        names += [(PatternType.PREFIXED, name[:length]) for length in lengths if length <= len(name)]
        return filter(None, (self._by_pattern.get(Pattern(resource, *named)) for named in names))

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


def _encoded(acls: Collection[Acl]) -> dict[str, Any]:
    return {
        "acls": [
            [acl.pattern.resource.name, acl.pattern.type.name, acl.pattern.name, acl.principal, acl.host,
             acl.operation.name, acl.permission.name]
            for acl in acls
        ]
    }  # fmt: skip


def _decoded(state: Mapping[str, Any]) -> Collection[Acl]:
    return [
        Acl(
            Pattern(ResourceType[resource], PatternType[kind], name), principal, host, Operation[operation],
            Permission[permission],
        )
        for resource, kind, name, principal, host, operation, permission in state["acls"]
    ]  # fmt: skip
