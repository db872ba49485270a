"""Generates the Python source of readers of messages.

Readers do not trust the bytes. The length of an array is checked against the remaining bytes, and the caller limits the
number of elements in all arrays of a message together. Null is accepted only where the definition allows it. A tagged
field (KIP-482) must be exactly as long as the size before it; unknown tagged fields are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn
from uuid import UUID

from kafkalog_spark.format.messages.definitions import Field, Struct
from kafkalog_spark.format.messages.source import Source
from kafkalog_spark.format.messages.values import Values
from kafkalog_spark.format.messages.wire import Malformed, ends_early, tag_does_not_rise, tag_too_long
from kafkalog_spark.format.varints import read_uvarint

UNBOUNDED = 1 << 62  # number of array elements in a message that only its size limits

Body = bytes | memoryview
Read = Callable[..., tuple[Any, int]]
"""read(data, position, max_elements=UNBOUNDED) returns (value, position after it).

max_elements limits the elements of all arrays together. Raises Malformed.
"""

_TOO_MANY = "it has more array elements than a request may have: send several smaller requests"
_SIZED = {"string": "str(data[at:{}], 'utf-8')", "bytes": "bytes(data[at:{}])", "records": "view(data)[at:{}]"}


class ReaderSource(Source):
    """Source of a reader. Its methods generate the code that reads one part of a message."""

    def __init__(
        self, what: str, values: Values, default: Callable[[Field], Any], class_of: Callable[[Struct], type]
    ) -> None:
        """
        Args:
            what: Name of the reader, for tracebacks.
            values: Representation of messages in Python.
            default: Returns the default of a field.
            class_of: Returns the class of a struct.
        """
        super().__init__(what, {**_NAMES, **values.names})
        self._values, self._default_of, self._class_of = values, default, class_of

    def message_reader(self, message: Struct) -> Read:
        """Compile the reader of a message."""
        with self.block("def read(data, at, left=UNBOUNDED):"):
            with self.block("try:"):
                self.line("size = len(data)")
                self.struct(message, "value")
                self.line("return value, at")
            self.line("except Malformed: raise")
            self.line("except errors as error: unreadable(error, at)")
        read: Read = self.compiled("read")
        return read

    def struct(self, definition: Struct, target: str) -> None:
        """Generate the code that reads a struct into `target`. Neighbouring fields of fixed size are unpacked
        together."""
        names = {field: self.name(field.name) for field in definition.fields}
        run: list[Field] = []
        for field in definition.present:
            if field.tag is not None:
                continue
            if not field.is_array and self._values.form(field) is not None and field.most is None:
                run.append(field)
                continue
            self._unpack(run, names)
            run = []
            self.field(field, names[field])
        self._unpack(run, names)
        if definition.is_flexible:
            self._tags([field for field in definition.present if field.tag is not None], names)
        class_name = self.name(definition.name, self._class_of(definition))
        if self._values.is_tuple:
            for field in definition.fields:
                if not field.is_present:
                    self.line(f"{names[field]} = {self._default(field)}")
            self.line(f"{target} = new_tuple({class_name}, ({', '.join(names.values())},))")
            return
        self.line(f"{target} = new({class_name})")
        for field in definition.present:
            self.line(f"{target}.{field.name} = {names[field]}")

    def field(self, field: Field, name: str) -> None:
        """Generate the code that reads one field by itself into the variable `name`."""
        if field.is_array:
            self._array(field, name)
        elif field.struct is None:
            self._primitive(field, name, is_nullable=field.is_nullable)
        elif field.is_nullable:
            self.line("at += 1")
            self.line(f"if data[at - 1] == {0 if field.tag is not None else 255}: {name} = None")
            with self.block("else:"):
                self.struct(field.struct, name)
        else:
            self.struct(field.struct, name)

    def _unpack(self, run: Sequence[Field], names: Mapping[Field, str]) -> None:
        if not run:
            return
        layout = struct.Struct(">" + "".join(self._values.form(field) or "" for field in run))
        unpack = self.name("unpack", layout.unpack_from)
        self.line(f"{', '.join(names[field] for field in run)}, = {unpack}(data, at)")
        self.line(f"at += {layout.size}")
        for field in run:
            name, conversion = names[field], self._values.conversion(field)
            if conversion is not None:
                self.line(f"{name} = {conversion.read.format(name)}")
            if field.most is not None:
                why = f"f'{field.name.replace('_', ' ')} is {{{name}}}, expected 0 to {field.most}'"
                self.line(f"if not 0 <= {name} <= {field.most}: malformed({why}, at - {layout.size})")

    def _tags(self, tagged: Sequence[Field], names: Mapping[Field, str]) -> None:
        for field in tagged:
            self.line(f"{names[field]} = {self._default(field)}")
        count, tag, size, end = (self.name(what) for what in ("count", "tag", "size", "end"))
        self.line("if data[at] == 0: at += 1")
        with self.block("else:"):
            self.line(f"{count}, at = read_uvarint(data, at)")
            self._charge_elements(count)
            last = self.name("last")
            if self._values.is_tuple:
                self.line(f"{last} = -1")
            with self.block(f"for {count} in range({count}):"):
                self.line(f"{tag}, at = read_uvarint(data, at)")
                if self._values.is_tuple:
                    self.line(f"if {tag} <= {last}: raise tag_does_not_rise({tag}, {last}, at - 1)")
                    self.line(f"{last} = {tag}")
                self.line(f"{size}, at = read_uvarint(data, at)")
                self.line(f"{end} = at + {size}")
                self.line(f"if {end} > size: raise tag_too_long({tag}, {size}, data, at)")
                for field in tagged:
                    with self.block(f"if {tag} == {field.tag}:"):
                        self.field(field, names[field])
                        why = f"f'tagged field {field.tag} does not fill its {{{size}}} bytes'"
                        self.line(f"if at != {end}: malformed({why}, {end} - {size})")
                self.line(f"at = {end}")

    def _default(self, field: Field) -> str:
        default = self._default_of(field)
        return "None" if default is None else self.name("default", default)

    def _charge_elements(self, count: str) -> None:
        self.line(f"left -= {count}")
        self.line(f"if left < 0: malformed({_TOO_MANY!r}, at)")

    def _array(self, field: Field, name: str) -> None:
        with self._length(field, f"the array {field.name}", name, is_nullable=field.is_nullable):
            min_size = max(self._min_element_size(field), 1)
            why = f"f'an array of {{{name}}} elements, but only {{size - at}} bytes are left'"
            self.line(f"if {name} * {min_size} > size - at: malformed({why}, at)")
            self._charge_elements(name)
            values, value = self.name("values"), self.name("value")
            form = self._values.form(field)
            if form is not None and self._values.conversion(field) is None:
                self.line(f"{values} = {name} * {min_size}")
                self.line(f"{name} = unpack(f'>{{{name}}}{form}', data, at)")
                self.line(f"at += {values}")
                return
            self.line(f"{values} = []")
            with self.block(f"for {value} in range({name}):"):
                if field.struct is not None:
                    self.struct(field.struct, value)
                else:
                    self._primitive(field, value, is_nullable=False)
                self.line(f"{values}.append({value})")
            self.line(f"{name} = tuple({values})")

    def _primitive(self, field: Field, name: str, *, is_nullable: bool) -> None:
        if self._values.form(field) is not None:
            self._unpack([field], {field: name})
            return
        with self._length(field, field.name, name, is_nullable=is_nullable, is_text=field.type == "string"):
            end = self.name("end")
            self.line(f"{end} = at + {name}")
            why = f"f'{field.name} of {{{name}}} bytes, but only {{size - at}} bytes are left'"
            self.line(f"if {end} > size: malformed({why}, at)")
            self.line(f"{name} = {_SIZED[field.type].format(end)}")
            self.line(f"at = {end}")

    def _length(
        self, field: Field, what: str, name: str, *, is_nullable: bool, is_text: bool = False
    ) -> AbstractContextManager[None]:
        """Generate the code that reads a length, or null. Returns the block for a value that is not null."""
        width = 1 if field.is_flexible else 2 if is_text else 4
        if field.is_flexible:
            self.line(f"{name} = data[at] - 1; at += 1")
            self.line(f"if {name} > 126: {name}, at = read_uvarint(data, at - 1); {name} -= 1")
        else:
            self.line(f"{name}, = {'i16' if is_text else 'i32'}(data, at); at += {width}")
        with self.block(f"if {name} < 0:"):
            if not self._values.is_tuple:  # Kafka reads every negative length as null; records may have one
                self.line(f"if {name} < -1: malformed(f'{what} has the length {{{name}}}', at - {width})")
            self.line(f"{name} = None" if is_nullable else f"malformed('{what} is null', at - {width})")
        return self.block("else:")

    def _min_element_size(self, array: Field) -> int:
        """Return the minimal size of an element of an array, in bytes."""
        if array.struct is None:
            return self._min_size(array, is_array=False)
        plain = [field for field in array.struct.present if field.tag is None]
        return array.struct.is_flexible + sum(self._min_size(field, is_array=field.is_array) for field in plain)

    def _min_size(self, field: Field, *, is_array: bool) -> int:
        form = self._values.form(field)
        if form is not None and not is_array:
            return struct.calcsize(">" + form)
        if field.is_flexible or (field.struct is not None and not is_array):
            return 1
        return 2 if field.type == "string" and not is_array else 4


def _malformed(why: str, position: int) -> NoReturn:
    raise Malformed(why, position) from None


def _unreadable(error: Exception, position: int) -> NoReturn:
    """Raise Malformed for an error that reading beyond the end, or an invalid value, has caused."""
    if isinstance(error, struct.error | IndexError):
        raise ends_early(position) from None
    not_text = "a string is not UTF-8: " if isinstance(error, UnicodeDecodeError) else ""
    raise Malformed(f"{not_text}{error}", position) from None


_NAMES = {
    "read_uvarint": read_uvarint, "i16": struct.Struct(">h").unpack_from, "i32": struct.Struct(">i").unpack_from,
    "unpack": struct.unpack_from, "new": object.__new__, "new_tuple": tuple.__new__, "UUID": UUID,
    "zeros": bytes(16), "view": lambda data: memoryview(data).toreadonly(), "malformed": _malformed,
    "Malformed": Malformed, "errors": (struct.error, IndexError, ValueError, OverflowError),
    "unreadable": _unreadable, "tag_too_long": tag_too_long, "tag_does_not_rise": tag_does_not_rise,
    "UNBOUNDED": UNBOUNDED,
}  # fmt: skip
