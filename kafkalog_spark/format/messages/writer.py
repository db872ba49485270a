"""Writers of messages, as generated Python source."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.format.messages.definitions import Field, Struct
from kafkalog_spark.format.messages.source import Source
from kafkalog_spark.format.messages.values import Values
from kafkalog_spark.format.varints import uvarint

OWN_PIECE = 1024  # bytes from which on an encoded array is not copied: thousands of topics have the same configuration
_LONGEST_STRING = 2**15 - 1  # where the length is not compact

Write = Callable[[Any, bytearray], Any]
"""(value, bytes in front of it) to both: a list of bytes-like pieces, or a bytearray if values are tuples.

Raises TypeError, AttributeError, ValueError, struct.error or InvalidRecord for a value that the message cannot hold.
"""


class WriterSource(Source):
    """Source of a writer. values: how messages look. default: of a field."""

    def __init__(self, what: str, values: Values, default: Callable[[Field], Any]) -> None:
        super().__init__(what, {**_NAMES, **values.names})
        self._values, self._default = values, default

    def message_writer(self, message: Struct) -> Write:
        """Compile the writer of a message."""
        return self._compiled(lambda: self.struct(message, "value"))

    def array_writer(self, array: Field) -> Write:
        """Compile the writer of the value of an array."""
        return self._compiled(lambda: self.field(array, "value"))

    def _compiled(self, body: Callable[[], None]) -> Write:
        with self.block("def write(value, out):"):
            if not self._values.is_tuple:
                self.line("pieces = []")
            body()
            self.line("return out" if self._values.is_tuple else "return [*pieces, out]")
        write: Write = self.compiled("write")
        return write

    def struct(self, definition: Struct, value: str) -> None:
        """Fields of a fixed size that follow one another are packed at once."""
        names = {one: f"{value}.{one.name}" for one in definition.fields}
        if self._values.is_tuple:
            names = {one: self.name(one.name) for one in definition.fields}
            self.line(f"{', '.join(names.values())}, = {value}")
        plain = [one for one in definition.present if one.tag is None]
        tagged = [one for one in definition.present if one.tag is not None]
        forms, packed = "", []
        for one in plain:
            form = self._values.form(one)
            if form is not None and not one.is_array:
                forms += form
                packed.append(self._number(one, names[one]))
            else:
                self._pack(forms, packed)
                forms, packed = "", []
                self.field(one, names[one])
        if definition.is_flexible and not tagged:
            forms += "B"
            packed.append("0")
        self._pack(forms, packed)
        if tagged:
            self._tags(tagged, names)

    def field(self, one: Field, value: str) -> None:
        """A field that is not packed together with others, or is tagged."""
        if one.is_array:
            self._array(one, value)
        elif one.struct is None:
            self._primitive(one, value, is_nullable=one.is_nullable)
        elif one.is_nullable:
            with self.block(f"if {value} is None:"):
                self.line(f"out.append({0 if one.tag is not None else 255})")
            with self.block("else:"):
                self.line("out.append(1)")
                self.struct(one.struct, value)
        else:
            self.struct(one.struct, value)

    def _number(self, one: Field, value: str) -> str:
        conversion = self._values.conversion(one)
        return value if conversion is None else conversion.write.format(value, self.name("number"))

    def _pack(self, forms: str, values: Sequence[str]) -> None:
        if forms == "B":  # no tagged fields
            self.line("out.append(0)")
        elif forms:
            self.line(f"out += {self.name('pack', struct.Struct('>' + forms).pack)}({', '.join(values)})")

    def _array(self, one: Field, value: str) -> None:
        array = self.name(one.name)
        self.line(f"{array} = {value}")
        with self.block(f"if {array} is None:"):
            self.line(f"out += {self._length(one, '-1')}")
        if not self._values.is_tuple:
            with self.block(f"elif type({array}) is bytes:"):
                self.line(f"if len({array}) < {OWN_PIECE}: out += {array}")
                self.line(f"else: pieces += (out, {array}); out = bytearray()")
        with self.block("else:"):
            self.line(f"out += {self._length(one, f'len({array})')}")
            form = self._values.form(one)
            if form is not None and self._values.is_tuple and self._values.conversion(one) is None:
                self.line(f"out += pack(f'>{{len({array})}}{form}', *{array})")
            else:  # most arrays of responses have one number, which is packed faster by itself
                self._elements(one, array)

    def _elements(self, one: Field, array: str) -> None:
        element = self.name("element")
        with self.block(f"for {element} in {array}:"):
            if one.struct is not None:
                self.struct(one.struct, element)
            else:
                self._primitive(one, element, is_nullable=False)

    def _primitive(self, one: Field, value: str, *, is_nullable: bool) -> None:
        form = self._values.form(one)
        if form is not None:
            self._pack(form, [self._number(one, value)])
            return
        found, is_text = self.name(one.name), one.type == "string"
        self.line(f"{found} = {value}")
        with self.block(f"if {found} is None:"):
            if is_nullable:
                self.line(f"out += {self._length(one, '-1', is_text=is_text)}")
            else:
                self.line(f"raise TypeError('{one.name} is null')")
        if one.type == "records":
            size = self.name("size")
            with self.block(f"elif type({found}) is list:"):
                self.line(f"{size} = sum(map(len, {found}))")
                self.line(f"out += {self._length(one, size)}")
                self.line(f"if {size}: pieces.append(out); pieces += {found}; out = bytearray()")
        with self.block("else:"):
            self.line(f"{found} = {found}.encode()" if is_text else f"{found} = bytes({found})")
            self.line(f"out += {self._length(one, f'len({found})', is_text=is_text)}")
            self.line(f"out += {found}")

    def _tags(self, tagged: Sequence[Field], names: Mapping[Field, str]) -> None:
        """Defaults are not written."""
        whole, tags = self.name("whole"), self.name("tags")
        self.line(f"{tags} = ()")
        for one in tagged:
            value = self.name(one.name)
            self.line(f"{value} = {names[one]}")
            default = self._default(one)
            is_written = [] if default is not None and self._values.is_tuple else [f"{value} is not None"]
            if default is not None:
                is_written.append(f"{value} != {self.name('default', default)}")
            with self.block(f"if {' and '.join(is_written)}:"):
                self.line(f"{whole}, out = out, bytearray()")
                self.field(one, value)
                self.line(f"{tags} += (uvarint({one.tag}), uvarint(len(out)), out)")
                self.line(f"out = {whole}")
        self.line(f"if {tags}: out += uvarint(len({tags}) // 3) + b''.join({tags})")
        self.line("else: out.append(0)")

    def _length(self, one: Field, size: str, *, is_text: bool = False) -> str:
        """Bytes in front of a string, bytes or an array; of size -1 for null."""
        return f"uvarint({size} + 1)" if one.is_flexible else f"{'text_size' if is_text else 'i32'}({size})"


def _text_size(size: int) -> bytes:
    if size > _LONGEST_STRING:
        raise InvalidRecord(f"{size} bytes of text, at most {_LONGEST_STRING} fit")
    return size.to_bytes(2, "big", signed=True)


_NAMES = {
    "zeros": bytes(16), "uvarint": uvarint, "text_size": _text_size, "i32": struct.Struct(">i").pack,
    "pack": struct.pack,
}  # fmt: skip
