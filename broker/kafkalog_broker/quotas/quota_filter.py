"""Filters of DescribeClientQuotas, with the checks and messages of Kafka's ClientQuotasImage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.quotas.quota_entity import TYPES, Entity, Quotas


class MatchType(IntEnum):
    """How a filter component matches entity names, as numbered in the protocol."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


class FilterComponent(NamedTuple):
    """Component of a filter, as in the request: `match` is the name for MatchType.EXACT, else None."""

    entity_type: str
    match_type: int
    match: str | None


def matching_entities(quotas: Quotas, components: Iterable[FilterComponent], *, strict: bool) -> list[Entity]:
    """Return the entities that match all components, in order. Run in a thread: there may be tens of thousands.

    Args:
        strict: Exclude entities that have an entity type which no component names.

    Raises:
        BrokerError: invalid_request, or unsupported_version for an unknown entity type.
    """
    wanted = _check_filter(components)

    def matches(named: Mapping[str, str | None]) -> bool:
        if strict and len(named) != len(wanted.names) + len(wanted.any_name):
            return False
        has_names = all(kind in named and named[kind] == name for kind, name in wanted.names.items())
        return has_names and wanted.any_name <= named.keys()

    matching = (entity for entity in quotas if matches(entity.named()))
    return sorted(matching, key=lambda entity: [(name is None, name or "") for name in entity])


@dataclass(frozen=True, slots=True)
class _Filter:
    """Entity types that must have the given name (None: the default), and those that may have any name."""

    names: Mapping[str, str | None]
    any_name: set[str]


def _check_filter(components: Iterable[FilterComponent]) -> _Filter:
    names: dict[str, str | None] = {}
    any_name: set[str] = set()
    for entity_type, match_type, match in components:
        if not entity_type:
            raise BrokerError(ErrorCode.invalid_request, "Invalid empty entity type.")
        if entity_type in names or entity_type in any_name:
            raise BrokerError(
                ErrorCode.invalid_request, f"Entity type {entity_type} cannot appear more than once in the filter."
            )
        if match_type == MatchType.EXACT:
            if match is None:
                raise BrokerError(
                    ErrorCode.invalid_request, "Request specified MATCH_TYPE_EXACT, but set match string to null."
                )
            names[entity_type] = match
        elif match_type in (MatchType.DEFAULT, MatchType.SPECIFIED):
            if match is not None:
                name = f"MATCH_TYPE_{MatchType(match_type).name}"
                raise BrokerError(
                    ErrorCode.invalid_request, f"Request specified {name}, but also specified a match string."
                )
            if match_type == MatchType.DEFAULT:
                names[entity_type] = None
            else:
                any_name.add(entity_type)
        else:
            raise BrokerError(ErrorCode.invalid_request, f"Unknown match type {match_type}")
    entity_types = names.keys() | any_name
    if "ip" in entity_types and entity_types & {"user", "client-id"}:
        raise BrokerError(
            ErrorCode.invalid_request,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        )
    for entity_type in sorted(entity_types - set(TYPES)):
        raise BrokerError(ErrorCode.unsupported_version, f"Unsupported entity type {entity_type}")
    return _Filter(names, any_name)
