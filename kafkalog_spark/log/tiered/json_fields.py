"""Fields of a JSON object with the types they must have, and errors that name the field."""

from __future__ import annotations

import re
from typing import Any

from kafkalog_spark.errors import CorruptManifest
from kafkalog_spark.log.format.layout import MAX_INT32, MAX_INT64

_EPOCH = re.compile(r"0|[1-9][0-9]{0,9}")


class JsonFields:
    """One JSON object. Every method takes a field's name and raises CorruptManifest when it is not of that type."""

    def __init__(self, value: Any, name: str) -> None:
        if not isinstance(value, dict):
            raise CorruptManifest(f"{name or 'the manifest'} is {_shown(value)}, expected an object")
        self._value: dict[str, Any] = value
        self._name = name

    def _full(self, name: str) -> str:
        return f"{self._name}.{name}" if self._name else name

    def _get(self, name: str, kind: type, expected: str) -> Any:
        if name not in self._value:
            raise CorruptManifest(f"{self._full(name)} is missing, expected {expected}")
        value = self._value[name]
        if type(value) is not kind:  # True is an int to isinstance
            raise CorruptManifest(f"{self._full(name)} is {_shown(value)}, expected {expected}")
        return value

    def text(self, name: str) -> str:
        return str(self._get(name, str, "a string"))

    def boolean(self, name: str) -> bool:
        return bool(self._get(name, bool, "true or false"))

    def integer(self, name: str, least: int = 0) -> int:
        """An integer from `least` to 2^63 - 1."""
        value = int(self._get(name, int, "an integer"))
        if not least <= value <= MAX_INT64:
            raise CorruptManifest(f"{self._full(name)} is {_shown(value)}, expected {least} to 2^63-1")
        return value

    def fields(self, name: str) -> JsonFields:
        """The object in a field."""
        return JsonFields(self._get(name, dict, "an object"), self._full(name))

    def optional(self, name: str) -> JsonFields | None:
        """The object in a field; None when it is null or missing."""
        return None if self._value.get(name) is None else self.fields(name)

    def integers_by_number(self) -> list[tuple[int, int]]:
        """This object as {"epoch": offset}, by epoch."""
        found = []
        for name in self._value:
            if not _EPOCH.fullmatch(name) or int(name) > MAX_INT32:
                raise CorruptManifest(f"{self._name} has the key {_shown(name)}, expected a leader epoch")
            found.append((int(name), self.integer(name)))
        return sorted(found)


def _shown(value: Any) -> str:
    """A value's beginning: manifests may hold anything."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of more than 128 bits"
    text = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:40]}..."
