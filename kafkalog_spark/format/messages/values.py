"""How messages look in Python: their classes, and types whose values are not those of the struct module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_spark.format.messages.definitions import Field, Struct, ToAttribute, plain_attribute

NUMBERS = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d",
}  # fmt: skip
"""Format characters of Kafka's types of fixed size, but for uuid."""
_ANNOTATIONS = {
    **dict.fromkeys(NUMBERS, "int"), "bool": "bool", "float64": "float", "string": "str", "bytes": "bytes",
    "records": "memoryview",
}  # fmt: skip


class Conversion(NamedTuple):
    """A type whose Python values are not those of the struct module.

    Attributes:
        form: Format character of the number, or "16s".
        read: Python expression of the value; {0} stands for what was unpacked.
        write: Python expression of the number; {0} stands for the value, {1} for a free name.
        from_default: The value of a stated or implicit default.
        annotation: Type of the attribute.
    """

    form: str
    read: str
    write: str
    from_default: Callable[[Any], Any]
    annotation: str


_UUID = Conversion("16s", "UUID(bytes={0})", "{0}.bytes", lambda _: UUID(int=0), "UUID")
_UUID_OR_NONE = Conversion(
    "16s",
    "None if {0} == zeros else UUID(bytes={0})",
    "zeros if ({1} := {0}) is None else {1}.bytes",
    lambda _: None,
    "UUID | None",
)

MakeClass = Callable[[Struct, Mapping[str, Any], Mapping[str, str]], type]
"""(struct, defaults by name, annotations by name) to the class of its values."""


@dataclass(frozen=True, slots=True)
class Values:
    """How messages look in Python.

    Attributes:
        make_class: Makes the class of a struct.
        is_tuple: Values are tuples of all fields. Any sequence in that order is written. Otherwise values are objects
            with slots, and anything with the attributes is written.
        conversions: Types that `to_attribute` adds to Kafka's.
        names: Names in the expressions of `conversions`.
    """

    make_class: MakeClass
    is_tuple: bool
    to_attribute: ToAttribute = plain_attribute
    conversions: Mapping[str, Conversion] = field(default_factory=dict)
    names: Mapping[str, Any] = field(default_factory=dict)

    def conversion(self, one: Field) -> Conversion | None:
        """The conversion of a field, or of the elements of an array."""
        if one.type == "uuid":
            return _UUID_OR_NONE if one.is_nullable or (one.is_array and not self.is_tuple) else _UUID
        return self.conversions.get(one.type)

    def form(self, one: Field) -> str | None:
        """The format character of a field, or of an array's elements; None if their size is not fixed."""
        conversion = self.conversion(one)
        return NUMBERS.get(one.type) if conversion is None else conversion.form

    def annotation(self, one: Field) -> str:
        """The type of a field's attribute."""
        conversion = self.conversion(one)
        kind = one.type if one.struct else _ANNOTATIONS[one.type] if conversion is None else conversion.annotation
        whole = f"tuple[{kind}, ...]" if one.is_array else kind
        return f"{whole} | None" if one.is_nullable and not whole.endswith("None") else whole
