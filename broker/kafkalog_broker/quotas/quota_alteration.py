"""Changes of the quotas of one entity by AlterClientQuotas, with the checks and messages of Kafka's
ClientQuotaControlManager."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.quotas.quota_entity import TYPES, Entity, Quotas

_WHOLE_NUMBERS = {"LONG": (2**63, "a LONG"), "INT": (2**31, "an INT")}  # by type: exclusive bound, text for messages
_MAX_FRACTION = 1e-6  # largest distance of a double from the whole number that it stands for


class QuotaOperation(NamedTuple):
    """Set the quota `key` of an entity to `value`, or remove it if `value` is None."""

    key: str
    value: float | None


class AlteredQuotas(NamedTuple):
    """All quotas of an entity after an alteration."""

    entity: Entity
    values: dict[str, float]


def alter_quotas(
    quotas: Quotas, names: Iterable[tuple[str, str | None]], operations: Iterable[QuotaOperation]
) -> AlteredQuotas:
    """Return the quotas of an entity after `operations`, without changing `quotas`.

    Args:
        names: Entity types with entity names, as in the request. The last name of a type counts, as in Kafka.

    Raises:
        BrokerError: invalid_request.
    """
    entity = _check_entity(names)
    values = dict(quotas.get(entity, {}))
    for key, value in operations:
        if key not in entity.keys:
            raise BrokerError(ErrorCode.invalid_request, f"Invalid configuration key {key}")
        if value is None:
            values.pop(key, None)
        else:
            values[key] = _check_value(key, value, entity.keys[key])
    return AlteredQuotas(entity, values)


def _check_entity(names: Iterable[tuple[str, str | None]]) -> Entity:
    named: dict[str, str | None] = {}
    for kind, name in names:
        if kind not in TYPES:
            raise BrokerError(ErrorCode.invalid_request, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise BrokerError(ErrorCode.invalid_request, f"Empty {kind} not supported")
        named[kind] = name
    if not named:
        raise BrokerError(ErrorCode.invalid_request, "Invalid empty client quota entity")
    if "ip" in named and len(named) > 1:
        raise BrokerError(
            ErrorCode.invalid_request,
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",  # Kafka's words
        )
    address = named.get("ip")
    if address is not None:
        try:
            ip_address(address)
        except ValueError:
            raise BrokerError(ErrorCode.invalid_request, f"{address} is not a valid IP or resolvable host.") from None
    return Entity.from_named(named)


def _check_value(key: str, value: float, type_name: str) -> float:
    if value <= 0 or value != value:
        raise BrokerError(ErrorCode.invalid_request, f"Quota {key} must be greater than 0")
    if type_name not in _WHOLE_NUMBERS:
        return value
    end, type_text = _WHOLE_NUMBERS[type_name]
    if value >= end:
        raise BrokerError(ErrorCode.invalid_request, f"Proposed value for {key} is too large for {type_text}.")
    whole = int(value + _MAX_FRACTION)
    if abs(whole - value) > _MAX_FRACTION:
        raise BrokerError(ErrorCode.invalid_request, f"{key} cannot be a fractional value.")
    return float(whole)
