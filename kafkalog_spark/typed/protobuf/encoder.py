"""Rows to Protobuf, by Google's library."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import InvalidRecord, OptionError
from kafkalog_spark.typed.protobuf.types import ENUM, MESSAGE, is_map, is_repeated, is_timestamp

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ProtobufEncoder:
    """Encodes rows as messages of a descriptor; null is a field that is not there."""

    def __init__(self, descriptor: Any, given: pa.Schema, prefix: bytes = b"") -> None:
        """prefix: what begins each value. Raises OptionError for a column that the message has no field for."""
        from google.protobuf import message_factory

        known = set(descriptor.fields_by_name)
        if lost := [name for name in given.names if name not in known]:
            raise OptionError(f"the message {descriptor.full_name} has no field for {', '.join(lost)}")
        self._descriptor, self._prefix = descriptor, prefix
        self._new = message_factory.GetMessageClass(descriptor)

    def encode(self, columns: pa.StructArray) -> pa.BinaryArray:
        """As ValueEncoder.encode. Raises InvalidRecord for a row that the message has no place for."""
        from google.protobuf import message

        found: list[bytes | None] = []
        for i, row in enumerate(columns.to_pylist()):
            if row is None:
                found.append(None)
                continue
            try:
                made = self._new()
                _fill(made, self._descriptor, row)
                found.append(self._prefix + made.SerializeToString(deterministic=True))
            except (ValueError, TypeError, KeyError, message.EncodeError) as error:
                raise InvalidRecord(f"row {i} does not fit {self._descriptor.full_name}: {error}") from error
        return pa.array(found, pa.binary())


def _fill(made: Any, descriptor: Any, row: dict[str, Any]) -> None:
    for name, value in row.items():
        if value is None:
            continue
        field = descriptor.fields_by_name[name]
        if is_map(field):
            _fill_map(getattr(made, name), field, value)
        elif is_repeated(field):
            into = getattr(made, name)
            for one in value:
                if one is None:
                    raise ValueError(f"{name} has a null, which a repeated field cannot hold")
                if field.type == MESSAGE:
                    _message(into.add(), field.message_type, one)
                else:
                    into.append(_scalar(field, one))
        elif field.type == MESSAGE:
            into = getattr(made, name)
            into.SetInParent()
            _message(into, field.message_type, value)
        else:
            setattr(made, name, _scalar(field, value))


def _fill_map(into: Any, field: Any, value: Any) -> None:
    values = field.message_type.fields_by_number[2]
    for key, one in value:
        if one is None:
            raise ValueError(f"{field.name} has a null, which a map cannot hold")
        if values.type == MESSAGE:
            _message(into[key], values.message_type, one)
        else:
            into[key] = _scalar(values, one)


def _message(made: Any, descriptor: Any, value: Any) -> None:
    if is_timestamp(descriptor):
        since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
        made.seconds, made.nanos = since.days * 86_400 + since.seconds, since.microseconds * 1000
    else:
        _fill(made, descriptor, value)


def _scalar(field: Any, value: Any) -> Any:
    if field.type == ENUM and isinstance(value, str):
        return field.enum_type.values_by_name[value].number
    return int(value) if type(value).__name__ == "Decimal" else value
