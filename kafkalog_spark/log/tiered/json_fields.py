"""Typed access to the fields of a JSON object."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from kafkalog_spark.errors import CorruptManifest
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.layout import MAX_INT32, MAX_INT64

_EPOCH = re.compile(r"0|[1-9][0-9]{0,9}")
_TYPE_NAMES = {str: "a string", bool: "true or false", int: "an integer", dict: "an object"}

T = TypeVar("T")


class JsonFields:
    """Fields of a JSON object in a manifest.

    All methods raise CorruptManifest, with the full name of the field, if a field is missing or has a wrong type.

    Args:
        value: The parsed JSON value.
        name: Full name of the object in the manifest, for errors; empty for the manifest itself.
    """

    def __init__(self, value: Any, name: str = "") -> None:
        if not isinstance(value, dict):
            raise CorruptManifest(f"{name or 'the manifest'} is {_shorten(value)}, expected an object")
        self._value: dict[str, Any] = value
        self._name = name

    def get(self, name: str, expected_type: type[T]) -> T:
        if name not in self._value:
            raise CorruptManifest(f"{self._full_name(name)} is missing, expected {_TYPE_NAMES[expected_type]}")
        value = self._value[name]
        if type(value) is not expected_type:  # isinstance(True, int) is true
            raise CorruptManifest(
                f"{self._full_name(name)} is {_shorten(value)}, expected {_TYPE_NAMES[expected_type]}"
            )
        return value

    def get_integer(self, name: str, minimum: int = 0) -> int:
        """Return an integer from `minimum` to 2^63 - 1."""
        value = self.get(name, int)
        if not minimum <= value <= MAX_INT64:
            raise CorruptManifest(f"{self._full_name(name)} is {_shorten(value)}, expected {minimum} to 2^63-1")
        return value

    def get_object(self, name: str) -> JsonFields:
        return JsonFields(self.get(name, dict), self._full_name(name))

    def get_optional_object(self, name: str) -> JsonFields | None:
        """Return the object in a field, or None if the field is null or missing."""
        return None if self._value.get(name) is None else self.get_object(name)

    def get_nullable_object(self, name: str) -> JsonFields | None:
        """Return the object in a field, or None if the field is null. The field must not be missing."""
        if name not in self._value:
            raise CorruptManifest(f"{self._full_name(name)} is missing, expected an object or null")
        return self.get_optional_object(name)

    def get_epochs(self) -> tuple[EpochEntry, ...]:
        """Return this object, which maps leader epochs to start offsets, as entries in order of epochs."""
        for name in self._value:
            if not _EPOCH.fullmatch(name) or int(name) > MAX_INT32:
                raise CorruptManifest(f"{self._name} has the key {_shorten(name)}, expected a leader epoch")
        return tuple(sorted(EpochEntry(int(name), self.get_integer(name)) for name in self._value))

    def _full_name(self, name: str) -> str:
        return f"{self._name}.{name}" if self._name else name


def _shorten(value: Any) -> str:
    """Return a text of bounded length for a value of any type and size."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of more than 128 bits"
    text = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:40]}..."
