"""Representation of messages in Python: their classes, and conversions of values that `struct` does not know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_spark.format.messages.definitions import Field, Struct, ToAttribute, plain_attribute

NUMBERS = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d",
}  # fmt: skip
"""Format characters of Kafka's types of fixed size except uuid."""
_ANNOTATIONS = {
    **dict.fromkeys(NUMBERS, "int"), "bool": "bool", "float64": "float", "string": "str", "bytes": "bytes",
    "records": "memoryview",
}  # fmt: skip


class Conversion(NamedTuple):
    """Converts between the values that `struct` packs and the values in Python.

    Attributes:
        format_character: Format character of the packed value, or "16s".
        read: Expression for the Python value; {0} stands for the unpacked one.
        write: Expression for the value to pack; {0} stands for the Python value, {1} for an unused name.
        from_default: Function from the default in the definition to the Python value.
        annotation: Type of the attribute.
    """

    format_character: str
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
"""Function from a struct, its defaults by name and its annotations by name to a class."""


@dataclass(frozen=True, slots=True)
class Values:
    """Representation of messages in Python.

    Attributes:
        make_class: Makes the class of a struct.
        is_tuple: True if values are tuples of all fields; any sequence in that order can be written. False if they are
            objects with slots; any object with the attributes can be written.
        to_attribute: Names and types the attributes.
        conversions: Conversions of the types that `to_attribute` adds to Kafka's.
        names: Objects to which the expressions of `conversions` refer.
    """

    make_class: MakeClass
    is_tuple: bool
    to_attribute: ToAttribute = plain_attribute
    conversions: Mapping[str, Conversion] = field(default_factory=dict)
    names: Mapping[str, Any] = field(default_factory=dict)

    def conversion(self, field: Field) -> Conversion | None:
        """Return the conversion of a field, or of the elements of an array, or None."""
        if field.type == "uuid":
            return _UUID_OR_NONE if field.is_nullable or (field.is_array and not self.is_tuple) else _UUID
        return self.conversions.get(field.type)

    def format_character(self, field: Field) -> str | None:
        """Return the format character of a field, or of an array's elements; None if their size is not fixed."""
        conversion = self.conversion(field)
        return NUMBERS.get(field.type) if conversion is None else conversion.format_character

    def annotation(self, field: Field) -> str:
        """Return the type of a field's attribute, as source text."""
        conversion = self.conversion(field)
        element_type = (
            field.type if field.struct else _ANNOTATIONS[field.type] if conversion is None else conversion.annotation
        )
        full_type = f"tuple[{element_type}, ...]" if field.is_array else element_type
        return f"{full_type} | None" if field.is_nullable and not full_type.endswith("None") else full_type
