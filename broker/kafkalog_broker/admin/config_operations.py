"""Operations on the properties of a resource, and their result as a new set of overrides."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkalog_broker.config.definition import Property, PropertyType
from kafkalog_broker.errors import BrokerError, ErrorCode


class ConfigOperation(enum.IntEnum):
    """Kafka's `AlterConfigOp.OpType`."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class PropertyChange(NamedTuple):
    """An operation on one property."""

    name: str
    operation: ConfigOperation
    value: str | None


class ResourceChange(NamedTuple):
    """The requested change to the configuration of one resource.

    Attributes:
        name: Resource name.
        properties: Operations, at most one for each property.
        replaces_all: The resource keeps none of its present overrides (AlterConfigs).
        validate_only: Check the change without applying it.
    """

    name: str
    properties: Sequence[PropertyChange]
    replaces_all: bool
    validate_only: bool

    def apply_to(self, overrides: Mapping[str, str], definitions: Mapping[str, Property]) -> dict[str, str]:
        """Return the overrides after the change.

        Args:
            overrides: Present overrides of the resource.
            definitions: Definitions of the properties; their types decide which of them are lists.

        Raises:
            BrokerError: INVALID_REQUEST for a property that is named twice or a missing value, INVALID_CONFIG for an
                operation that the property's type does not have.
        """
        names = [change.name for change in self.properties]
        if len(set(names)) != len(names):
            raise BrokerError(ErrorCode.invalid_request, "Error due to duplicate config keys")
        nulls = [
            change.name
            for change in self.properties
            if change.value is None and change.operation is not ConfigOperation.DELETE
        ]
        if nulls:
            raise BrokerError(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(nulls)}")
        changed = {} if self.replaces_all else dict(overrides)
        for change in self.properties:
            if change.operation is ConfigOperation.DELETE:
                changed.pop(change.name, None)
            elif change.operation is ConfigOperation.SET:
                changed[change.name] = change.value or ""
            else:
                changed[change.name] = _change_list(change, changed.get(change.name), definitions)
        return changed


def _change_list(change: PropertyChange, current: str | None, definitions: Mapping[str, Property]) -> str:
    definition = definitions.get(change.name)
    if definition is None or definition.type is not PropertyType.LIST:
        message = f"Can't {change.operation.name} to key {change.name} because its type is not LIST."
        raise BrokerError(ErrorCode.invalid_config, message)
    # As in Kafka, a property without an override starts from its own default, even if the broker's default differs.
    items = _list_items(definition.default or "" if current is None else current)
    for item in _list_items(change.value or ""):
        if change.operation is ConfigOperation.APPEND and item not in items:
            items.append(item)
        elif change.operation is ConfigOperation.SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def _list_items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
