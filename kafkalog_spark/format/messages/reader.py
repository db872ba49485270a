"""Readers of messages, as generated Python source.

They trust no byte. An array announces no more elements than the remaining bytes have room for, and all arrays of a
message together no more than the caller allows. Null is accepted only where the definition has it. The value of a
tagged field (KIP-482) has exactly the size in front of it; tagged fields that are not known are skipped.
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

UNBOUNDED = 1 << 62  # elements of arrays in a message, where only its size bounds them

Body = bytes | memoryview
Read = Callable[..., tuple[Any, int]]
"""(bytes, position, number of elements that all arrays together may have; unbounded if left out) to the value that
begins there and the position after it. Raises Malformed."""

_TOO_MANY = "it names more things than one request may: send several smaller ones"
_SIZED = {"string": "str(data[at:{}], 'utf-8')", "bytes": "bytes(data[at:{}])", "records": "view(data)[at:{}]"}


class ReaderSource(Source):
    """Source of a reader. values: how messages look. default: of a field. class_of: the class of a struct."""

    def __init__(
        self, what: str, values: Values, default: Callable[[Field], Any], class_of: Callable[[Struct], type]
    ) -> None:
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
        """Fields of a fixed size that follow one another are unpacked at once."""
        names = {one: self.name(one.name) for one in definition.fields}
        run: list[Field] = []
        for one in definition.present:
            if one.tag is not None:
                continue
            if not one.is_array and self._values.form(one) is not None and one.most is None:
                run.append(one)
                continue
            self._unpack(run, names)
            run = []
            self.field(one, names[one])
        self._unpack(run, names)
        if definition.is_flexible:
            self._tags([one for one in definition.present if one.tag is not None], names)
        made = self.name(definition.name, self._class_of(definition))
        if self._values.is_tuple:
            for one in definition.fields:
                if not one.is_present:
                    self.line(f"{names[one]} = {self._default(one)}")
            self.line(f"{target} = new_tuple({made}, ({', '.join(names.values())},))")
            return
        self.line(f"{target} = new({made})")
        for one in definition.present:
            self.line(f"{target}.{one.name} = {names[one]}")

    def field(self, one: Field, name: str) -> None:
        """A field that is not unpacked together with others, or is tagged."""
        if one.is_array:
            self._array(one, name)
        elif one.struct is None:
            self._primitive(one, name, is_nullable=one.is_nullable)
        elif one.is_nullable:
            self.line("at += 1")
            self.line(f"if data[at - 1] == {0 if one.tag is not None else 255}: {name} = None")
            with self.block("else:"):
                self.struct(one.struct, name)
        else:
            self.struct(one.struct, name)

    def _unpack(self, run: Sequence[Field], names: Mapping[Field, str]) -> None:
        if not run:
            return
        layout = struct.Struct(">" + "".join(self._values.form(one) or "" for one in run))
        unpack = self.name("unpack", layout.unpack_from)
        self.line(f"{', '.join(names[one] for one in run)}, = {unpack}(data, at)")
        self.line(f"at += {layout.size}")
        for one in run:
            name, conversion = names[one], self._values.conversion(one)
            if conversion is not None:
                self.line(f"{name} = {conversion.read.format(name)}")
            if one.most is not None:
                why = f"f'{{{name}}} is no {one.name.replace('_', ' ')}: 0 to {one.most} are known'"
                self.line(f"if not 0 <= {name} <= {one.most}: malformed({why}, at - {layout.size})")

    def _tags(self, tagged: Sequence[Field], names: Mapping[Field, str]) -> None:
        for one in tagged:
            self.line(f"{names[one]} = {self._default(one)}")
        count, tag, size, end = (self.name(what) for what in ("count", "tag", "size", "end"))
        self.line("if data[at] == 0: at += 1")
        with self.block("else:"):
            self.line(f"{count}, at = read_uvarint(data, at)")
            self._count_elements(count)
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
                for one in tagged:
                    with self.block(f"if {tag} == {one.tag}:"):
                        self.field(one, names[one])
                        why = f"f'tagged field {one.tag} does not fill its {{{size}}} bytes'"
                        self.line(f"if at != {end}: malformed({why}, {end} - {size})")
                self.line(f"at = {end}")

    def _default(self, one: Field) -> str:
        default = self._default_of(one)
        return "None" if default is None else self.name("default", default)

    def _count_elements(self, count: str) -> None:
        self.line(f"left -= {count}")
        self.line(f"if left < 0: malformed({_TOO_MANY!r}, at)")

    def _array(self, one: Field, name: str) -> None:
        with self._length(one, f"the array {one.name}", name, is_nullable=one.is_nullable):
            least = max(self._least_element(one), 1)
            why = f"f'an array of {{{name}}} elements, {{size - at}} bytes are left'"
            self.line(f"if {name} * {least} > size - at: malformed({why}, at)")
            self._count_elements(name)
            values, value = self.name("values"), self.name("value")
            form = self._values.form(one)
            if form is not None and self._values.conversion(one) is None:
                self.line(f"{values} = {name} * {least}")
                self.line(f"{name} = unpack(f'>{{{name}}}{form}', data, at)")
                self.line(f"at += {values}")
                return
            self.line(f"{values} = []")
            with self.block(f"for {value} in range({name}):"):
                if one.struct is not None:
                    self.struct(one.struct, value)
                else:
                    self._primitive(one, value, is_nullable=False)
                self.line(f"{values}.append({value})")
            self.line(f"{name} = tuple({values})")

    def _primitive(self, one: Field, name: str, *, is_nullable: bool) -> None:
        if self._values.form(one) is not None:
            self._unpack([one], {one: name})
            return
        with self._length(one, one.name, name, is_nullable=is_nullable, is_text=one.type == "string"):
            end = self.name("end")
            self.line(f"{end} = at + {name}")
            why = f"f'{one.name} of {{{name}}} bytes, {{size - at}} bytes are left'"
            self.line(f"if {end} > size: malformed({why}, at)")
            self.line(f"{name} = {_SIZED[one.type].format(end)}")
            self.line(f"at = {end}")

    def _length(
        self, one: Field, what: str, name: str, *, is_nullable: bool, is_text: bool = False
    ) -> AbstractContextManager[None]:
        """Read a length or null. Returns the block for a value that is not null."""
        width = 1 if one.is_flexible else 2 if is_text else 4
        if one.is_flexible:
            self.line(f"{name} = data[at] - 1; at += 1")
            self.line(f"if {name} > 126: {name}, at = read_uvarint(data, at - 1); {name} -= 1")
        else:
            self.line(f"{name}, = {'i16' if is_text else 'i32'}(data, at); at += {width}")
        with self.block(f"if {name} < 0:"):
            self.line(f"if {name} < -1: malformed(f'{what} has the length {{{name}}}', at - {width})")
            self.line(f"{name} = None" if is_nullable else f"malformed('{what} is null', at - {width})")
        return self.block("else:")

    def _least_element(self, array: Field) -> int:
        """Bytes that an element of an array has at least."""
        if array.struct is None:
            return self._least(array, is_array=False)
        plain = [one for one in array.struct.present if one.tag is None]
        return array.struct.is_flexible + sum(self._least(one, is_array=one.is_array) for one in plain)

    def _least(self, one: Field, *, is_array: bool) -> int:
        form = self._values.form(one)
        if form is not None and not is_array:
            return struct.calcsize(">" + form)
        if one.is_flexible or (one.struct is not None and not is_array):
            return 1
        return 2 if one.type == "string" and not is_array else 4


def _malformed(why: str, position: int) -> NoReturn:
    raise Malformed(why, position) from None


def _unreadable(error: Exception, position: int) -> NoReturn:
    """error: of reading beyond the end, or of a value that is not valid."""
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
