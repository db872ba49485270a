"""Changes of quotas by AlterClientQuotas, look-ups of DescribeClientQuotas, and the quotas' file, as Kafka's
ClientQuotaControlManager and ClientQuotasImage, with their messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from kafkalog_broker.config.state_copies import StateCopies
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.quotas.client_quotas import TYPES, Entity, Quotas, entity_of
from kafkalog_spark.errors import CorruptFile

EXACT, OF_DEFAULT, ANY = 0, 1, 2  # how a component of a filter is meant (DescribeClientQuotas)

_WHOLE = {"LONG": (2**63, "a LONG"), "INT": (2**31, "an INT")}
_ALMOST = 1e-6  # largest distance of a double from the whole number that it stands for


QuotaChange = tuple[str, float | None]  # key and value; None: the quota is to go
FilterComponent = tuple[str, int, str | None]  # entity type, match type, match


def altered(
    quotas: Quotas, named: Iterable[tuple[str, str | None]], operations: Iterable[QuotaChange]
) -> tuple[Entity, dict[str, float]]:
    """An entity, and all its quotas after the operations. Raises BrokerError invalid_request."""
    entity = _checked_entity(named)
    values = dict(quotas.get(entity, {}))
    for key, value in operations:
        if key not in entity.keys:
            raise _invalid(f"Invalid configuration key {key}")
        if value is None:
            values.pop(key, None)
            continue
        if value <= 0 or value != value:
            raise _invalid(f"Quota {key} must be greater than 0")
        if entity.keys[key] in _WHOLE:
            end, kind = _WHOLE[entity.keys[key]]
            if value >= end:
                raise _invalid(f"Proposed value for {key} is too large for {kind}.")
            whole = int(value + _ALMOST)
            if abs(whole - value) > _ALMOST:
                raise _invalid(f"{key} cannot be a fractional value.")
            value = float(whole)
        values[key] = value
    return entity, values


def _checked_entity(named: Iterable[tuple[str, str | None]]) -> Entity:
    """Of a type that is named twice the last counts, as in Kafka."""
    found: dict[str, str | None] = {}
    for kind, name in named:
        if kind not in TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        found[kind] = name
    if not found:
        raise _invalid("Invalid empty client quota entity")
    if "ip" in found and len(found) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"  # Kafka's words
        )
    address = found.get("ip")
    if address is not None:
        try:
            ip_address(address)
        except ValueError:
            raise _invalid(f"{address} is not a valid IP or resolvable host.") from None
    return entity_of(found)


def described(quotas: Quotas, components: Iterable[FilterComponent], *, strict: bool) -> list[Entity]:
    """The entities that match all components, in order; strict: and say nothing besides. In a thread: there may be tens
    of thousands. Raises BrokerError invalid_request."""
    exact, of_any = _filter(components)

    def matches(named: Mapping[str, str | None]) -> bool:
        if strict and len(named) != len(exact) + len(of_any):
            return False
        return all(kind in named and named[kind] == name for kind, name in exact.items()) and of_any <= named.keys()

    found = (entity for entity in quotas if matches(entity.named()))
    return sorted(found, key=lambda entity: [(name is None, name or "") for name in entity])


def _filter(components: Iterable[FilterComponent]) -> tuple[Mapping[str, str | None], set[str]]:
    exact: dict[str, str | None] = {}
    of_any: set[str] = set()
    for kind, how, match in components:
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in exact or kind in of_any:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if how == EXACT:
            if match is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            exact[kind] = match
        elif how in (OF_DEFAULT, ANY):
            if match is not None:
                name = "MATCH_TYPE_DEFAULT" if how == OF_DEFAULT else "MATCH_TYPE_SPECIFIED"
                raise _invalid(f"Request specified {name}, but also specified a match string.")
            if how == OF_DEFAULT:
                exact[kind] = None
            else:
                of_any.add(kind)
        else:
            raise _invalid(f"Unknown match type {how}")
    kinds = exact.keys() | of_any
    if "ip" in kinds and kinds & {"user", "client-id"}:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )
    for kind in sorted(kinds - set(TYPES)):
        raise BrokerError(ErrorCode.unsupported_version, f"Unsupported entity type {kind}")
    return exact, of_any


def _invalid(what: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_request, what)


# The quotas on disk, in `kafkalog.client-quotas.json`:
#
#     {"version": 0, "generation": 3,
#      "quotas": [{"entity": {"user": "alice", "client-id": null}, "values": {"producer_byte_rate": 1048576.0}}]}
#
# in which null is the default.

FILE = "kafkalog.client-quotas.json"


def quota_file(directories: Iterable[Path]) -> StateCopies[Quotas]:
    return StateCopies(FILE, directories, _encoded, _decoded)


def _encoded(quotas: Quotas) -> dict[str, Any]:
    return {
        "quotas": [{"entity": entity.named(), "values": dict(values)} for entity, values in quotas.items() if values]
    }


def _decoded(state: Mapping[str, Any]) -> Quotas:
    quotas = {}
    for entry in state["quotas"]:
        operations = [(key, float(value)) for key, value in entry["values"].items()]
        try:
            entity, values = altered({}, entry["entity"].items(), operations)
        except BrokerError as error:
            raise CorruptFile(f"this is not the JSON that was written: {error.what}") from None
        quotas[entity] = values
    return quotas
