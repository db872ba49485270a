"""Compiles the definition of a message into classes of its structs, a reader and a writer."""

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
        struct: Definition of the message in this version.
        message: Class of the message itself.
        classes: Classes of all structs: attributes with Kafka's names.
    """

    def __init__(self, definition: Struct, values: Values) -> None:
        self.struct = definition
        self._values = values
        self._by_struct: dict[Struct, type] = {}
        self.message = self._class_of(definition)
        self.classes = SimpleNamespace(**{field.name: class_ for field, class_ in self._by_struct.items()})

    @cached_property
    def read(self) -> Read:
        """The reader of the message."""
        source = ReaderSource(self._title("reader"), self._values, self.default, self.class_of)
        return source.compile_reader(self.struct)

    @cached_property
    def write(self) -> Write:
        """The writer of the message."""
        return WriterSource(self._title("writer"), self._values, self.default).compile_writer(self.struct)

    def array_writer(self, array: Field) -> Write:
        """Return a writer of the values of one array in the message."""
        title = self._title(f"writer of {array.name}")
        return WriterSource(title, self._values, self.default).compile_array_writer(array)

    def class_of(self, definition: Struct) -> type:
        """Return the class of a struct of the message."""
        return self._by_struct[definition]

    def default(self, field: Field) -> Any:
        """Return the value of an absent field."""
        if field.default is DEFAULT_STRUCT and field.struct is not None:
            class_: Any = self._by_struct[field.struct]
            inner = field.struct.fields if self._values.is_tuple else field.struct.present
            return class_(**{field.name: self.default(field) for field in inner})
        conversion = None if field.is_array else self._values.conversion(field)
        return field.default if conversion is None else conversion.from_default(field.default)

    def _title(self, purpose: str) -> str:
        return f"{purpose}, {self.struct.name} version {self.struct.version}"

    def _class_of(self, definition: Struct) -> type:
        for inner in definition.fields:
            if inner.struct is not None and inner.struct not in self._by_struct:
                self._class_of(inner.struct)
        defaults = {field.name: self.default(field) for field in definition.fields}
        annotations = {field.name: self._values.annotation(field) for field in definition.fields}
        class_ = self._values.make_class(definition, defaults, annotations)
        if issubclass(class_, StructValue):
            class_._struct, class_._message = definition, self
        self._by_struct[definition] = class_
        return class_
