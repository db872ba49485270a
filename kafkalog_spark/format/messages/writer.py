"""Generates the Python source of writers of messages.

A writer appends a message to the bytearray `out`. The lines are explained by an example in reader.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.format.messages.definitions import Field, Struct
from kafkalog_spark.format.messages.source import Source
from kafkalog_spark.format.messages.values import Values
from kafkalog_spark.format.messages.wire import NULL_STRUCT, NULL_TAGGED_STRUCT
from kafkalog_spark.format.varints import uvarint

OWN_PIECE = 1024  # size in bytes from which an encoded array is passed on as a piece of its own instead of copied
_LONGEST_STRING = 2**15 - 1  # bytes, in versions that are not flexible

Write = Callable[[Any, bytearray], Any]
"""Function from a value and the bytes in front of it to both: a list of bytes-like pieces, or a bytearray if values are
tuples.

Raises TypeError, AttributeError, ValueError, struct.error or InvalidRecord for a value that the message cannot hold.
"""


class WriterSource(Source):
    """Source of a writer. Methods `add_...` generate the lines that write one part of a message."""

    def __init__(self, title: str, values: Values, default: Callable[[Field], Any]) -> None:
        """
        Args:
            title: Name of the writer in tracebacks.
            values: Representation of messages in Python.
            default: Returns the default of a field.
        """
        super().__init__(title, {**_GLOBALS, **values.names})
        self._values, self._default = values, default

    def compile_writer(self, message: Struct) -> Write:
        """Compile the writer of a message."""
        return self._compile(lambda: self.add_struct(message, "value"))

    def compile_array_writer(self, array: Field) -> Write:
        """Compile the writer of the values of an array."""
        return self._compile(lambda: self.add_field(array, "value"))

    def _compile(self, body: Callable[[], None]) -> Write:
        with self.block("def write(value, out):"):
            if not self._values.is_tuple:
                self.add_line("pieces = []")
            body()
            self.add_line("return out" if self._values.is_tuple else "return [*pieces, out]")
        write: Write = self.compile("write")
        return write

    def add_struct(self, definition: Struct, value: str) -> None:
        """Add the lines that write a struct. Neighbouring fields of fixed size are packed together."""
        names = {field: f"{value}.{field.name}" for field in definition.fields}
        if self._values.is_tuple:
            names = {field: self.new_name(field.name) for field in definition.fields}
            self.add_line(f"{', '.join(names.values())}, = {value}")
        plain = [field for field in definition.present if field.tag is None]
        tagged = [field for field in definition.present if field.tag is not None]
        forms, packed = "", []
        for field in plain:
            form = self._values.format_character(field)
            if form is not None and not field.is_array:
                forms += form
                packed.append(self._packed_value(field, names[field]))
            else:
                self._add_packing(forms, packed)
                forms, packed = "", []
                self.add_field(field, names[field])
        if definition.is_flexible and not tagged:
            forms += "B"
            packed.append("0")
        self._add_packing(forms, packed)
        if tagged:
            self._add_tagged_fields(tagged, names)

    def add_field(self, field: Field, value: str) -> None:
        """Add the lines that write one field by itself."""
        if field.is_array:
            self._add_array(field, value)
        elif field.struct is None:
            self._add_primitive(field, value, is_nullable=field.is_nullable)
        elif field.is_nullable:
            with self.block(f"if {value} is None:"):
                self.add_line(f"out.append({NULL_STRUCT if field.tag is None else NULL_TAGGED_STRUCT})")
            with self.block("else:"):
                self.add_line("out.append(1)")
                self.add_struct(field.struct, value)
        else:
            self.add_struct(field.struct, value)

    def _packed_value(self, field: Field, value: str) -> str:
        conversion = self._values.conversion(field)
        return value if conversion is None else conversion.write.format(value, self.new_name("number"))

    def _add_packing(self, forms: str, values: Sequence[str]) -> None:
        if forms == "B":  # no tagged fields
            self.add_line("out.append(0)")
        elif forms:
            self.add_line(f"out += {self.new_name('pack', struct.Struct('>' + forms).pack)}({', '.join(values)})")

    def _add_array(self, field: Field, value: str) -> None:
        array = self.new_name(field.name)
        self.add_line(f"{array} = {value}")
        with self.block(f"if {array} is None:"):
            self.add_line(f"out += {self._encoded_length(field, '-1')}")
        if not self._values.is_tuple:
            with self.block(f"elif type({array}) is bytes:"):
                self.add_line(f"if len({array}) < {OWN_PIECE}: out += {array}")
                self.add_line(f"else: pieces += (out, {array}); out = bytearray()")
        with self.block("else:"):
            self.add_line(f"out += {self._encoded_length(field, f'len({array})')}")
            form = self._values.format_character(field)
            if form is not None and self._values.is_tuple and self._values.conversion(field) is None:
                self.add_line(f"out += pack(f'>{{len({array})}}{form}', *{array})")
            else:  # most arrays of responses have one number, which is faster without a format string
                self._add_elements(field, array)

    def _add_elements(self, field: Field, array: str) -> None:
        element = self.new_name("element")
        with self.block(f"for {element} in {array}:"):
            if field.struct is not None:
                self.add_struct(field.struct, element)
            else:
                self._add_primitive(field, element, is_nullable=False)

    def _add_primitive(self, field: Field, value: str, *, is_nullable: bool) -> None:
        form = self._values.format_character(field)
        if form is not None:
            self._add_packing(form, [self._packed_value(field, value)])
            return
        data, is_text = self.new_name(field.name), field.type == "string"
        self.add_line(f"{data} = {value}")
        with self.block(f"if {data} is None:"):
            if is_nullable:
                self.add_line(f"out += {self._encoded_length(field, '-1', is_text=is_text)}")
            else:
                self.add_line(f"raise TypeError('{field.name} is null')")
        if field.type == "records":
            size = self.new_name("size")
            with self.block(f"elif type({data}) is list:"):
                self.add_line(f"{size} = sum(map(len, {data}))")
                self.add_line(f"out += {self._encoded_length(field, size)}")
                self.add_line(f"if {size}: pieces.append(out); pieces += {data}; out = bytearray()")
        with self.block("else:"):
            self.add_line(f"{data} = {data}.encode()" if is_text else f"{data} = bytes({data})")
            self.add_line(f"out += {self._encoded_length(field, f'len({data})', is_text=is_text)}")
            self.add_line(f"out += {data}")

    def _add_tagged_fields(self, tagged: Sequence[Field], names: Mapping[Field, str]) -> None:
        """Add the lines that write tagged fields whose values are not the default."""
        whole, tags = self.new_name("whole"), self.new_name("tags")
        self.add_line(f"{tags} = ()")
        for field in tagged:
            value = self.new_name(field.name)
            self.add_line(f"{value} = {names[field]}")
            default = self._default(field)
            is_written = [] if default is not None and self._values.is_tuple else [f"{value} is not None"]
            if default is not None:
                is_written.append(f"{value} != {self.new_name('default', default)}")
            with self.block(f"if {' and '.join(is_written)}:"):
                self.add_line(f"{whole}, out = out, bytearray()")
                self.add_field(field, value)
                self.add_line(f"{tags} += (uvarint({field.tag}), uvarint(len(out)), out)")
                self.add_line(f"out = {whole}")
        self.add_line(f"if {tags}: out += uvarint(len({tags}) // 3) + b''.join({tags})")
        self.add_line("else: out.append(0)")

    def _encoded_length(self, field: Field, size: str, *, is_text: bool = False) -> str:
        """Return the expression for the encoded length of a string, bytes or an array; `size` is -1 for null."""
        return f"uvarint({size} + 1)" if field.is_flexible else f"{'text_size' if is_text else 'i32'}({size})"


def _text_size(size: int) -> bytes:
    if size > _LONGEST_STRING:
        raise InvalidRecord(f"{size} bytes of text, at most {_LONGEST_STRING} fit")
    return size.to_bytes(2, "big", signed=True)


_GLOBALS = {
    "zeros": bytes(16), "uvarint": uvarint, "text_size": _text_size, "i32": struct.Struct(">i").pack,
    "pack": struct.pack,
}  # fmt: skip
