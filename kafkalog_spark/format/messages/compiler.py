"""Messages compiled from their definitions: classes of their structs, readers and writers."""

from __future__ import annotations

from functools import cached_property
from types import SimpleNamespace
from typing import Any

from kafkalog_spark.format.messages.classes import StructValue
from kafkalog_spark.format.messages.definitions import DEFAULT_STRUCT, Field, Struct
from kafkalog_spark.format.messages.reader import Read, ReaderSource
from kafkalog_spark.format.messages.values import Values
from kafkalog_spark.format.messages.writer import Write, WriterSource


class CompiledMessage:
    """A message in one version, with the classes of its structs.

    Readers and writers are compiled at first use.

    Attributes:
        message: Class of the whole.
        classes: Classes of all structs, by Kafka's names, as attributes.
    """

    def __init__(self, definition: Struct, values: Values) -> None:
        self.struct = definition
        self._values = values
        self._by_struct: dict[Struct, type] = {}
        self.message = self._class_of(definition)
        self.classes = SimpleNamespace(**{one.name: made for one, made in self._by_struct.items()})

    @cached_property
    def read(self) -> Read:
        source = ReaderSource(self._named("reader"), self._values, self.default, self.class_of)
        return source.message_reader(self.struct)

    @cached_property
    def write(self) -> Write:
        return WriterSource(self._named("writer"), self._values, self.default).message_writer(self.struct)

    def array_writer(self, array: Field) -> Write:
        """The writer of the value of one array in the message."""
        what = self._named(f"writer of {array.name}")
        return WriterSource(what, self._values, self.default).array_writer(array)

    def class_of(self, definition: Struct) -> type:
        return self._by_struct[definition]

    def default(self, one: Field) -> Any:
        """The value of a field that is absent."""
        if one.default is DEFAULT_STRUCT and one.struct is not None:
            made: Any = self._by_struct[one.struct]
            inner = one.struct.fields if self._values.is_tuple else one.struct.present
            return made(**{one.name: self.default(one) for one in inner})
        conversion = None if one.is_array else self._values.conversion(one)
        return one.default if conversion is None else conversion.from_default(one.default)

    def _named(self, what: str) -> str:
        return f"{what}, {self.struct.name} version {self.struct.version}"

    def _class_of(self, definition: Struct) -> type:
        for inner in definition.fields:
            if inner.struct is not None and inner.struct not in self._by_struct:
                self._class_of(inner.struct)
        defaults = {one.name: self.default(one) for one in definition.fields}
        annotations = {one.name: self._values.annotation(one) for one in definition.fields}
        made = self._values.make_class(definition, defaults, annotations)
        if issubclass(made, StructValue):
            made._struct, made._message = definition, self
        self._by_struct[definition] = made
        return made
