"""Generates the Python source of readers of messages.

For example, this is the reader of OffsetCommitKey, which has two strings and an int32:

    def read(data, at, left=UNBOUNDED):
     try:
      size = len(data)
      group_1, = i16(data, at); at += 2
      if group_1 < 0:
       malformed('group is null', at - 2)
      else:
       end_4 = at + group_1
       if end_4 > size: malformed(f'group of {group_1} bytes, but only {size - at} bytes are left', at)
       group_1 = str(data[at:end_4], 'utf-8')
       at = end_4
      topic_2, = i16(data, at); at += 2
      if topic_2 < 0:
       malformed('topic is null', at - 2)
      else:
       end_5 = at + topic_2
       if end_5 > size: malformed(f'topic of {topic_2} bytes, but only {size - at} bytes are left', at)
       topic_2 = str(data[at:end_5], 'utf-8')
       at = end_5
      partition_3, = unpack_6(data, at)
      at += 4
      value = new_tuple(OffsetCommitKey_7, (group_1, topic_2, partition_3,))
      return value, at
     except Malformed: raise
     except errors as error: unreadable(error, at)

`at` is the position in `data`, and `left` the number of array elements that the message may still have. Names of other
variables end with a number, which makes them unique. _GLOBALS has the functions.

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
from kafkalog_spark.format.messages.wire import (
    NULL_STRUCT,
    NULL_TAGGED_STRUCT,
    Malformed,
    ends_early,
    tag_too_long,
    tags_not_increasing,
)
from kafkalog_spark.format.varints import read_uvarint

UNBOUNDED = 1 << 62  # number of array elements in a message that only its size limits

Body = bytes | memoryview
Read = Callable[..., tuple[Any, int]]
"""read(data, at, left=UNBOUNDED) reads the message at position `at`, and returns (value, position after it).

`left` limits the elements of all arrays together. Raises Malformed.
"""

_TOO_MANY_ELEMENTS = "it has more array elements than a request may have: send several smaller requests"
_DECODERS = {"string": "str(data[at:{}], 'utf-8')", "bytes": "bytes(data[at:{}])", "records": "view(data)[at:{}]"}
"""Expression for the value of each type that has a length; {} stands for the position after the value."""


def _malformed(message: str, position: int) -> NoReturn:
    raise Malformed(message, position) from None


def _unreadable(error: Exception, position: int) -> NoReturn:
    """Raise Malformed for an error that reading beyond the end, or an invalid value, has caused."""
    if isinstance(error, struct.error | IndexError):
        raise ends_early(position) from None
    not_text = "a string is not UTF-8: " if isinstance(error, UnicodeDecodeError) else ""
    raise Malformed(f"{not_text}{error}", position) from None


_GLOBALS = {
    "read_uvarint": read_uvarint, "i16": struct.Struct(">h").unpack_from, "i32": struct.Struct(">i").unpack_from,
    "unpack": struct.unpack_from, "new": object.__new__, "new_tuple": tuple.__new__, "UUID": UUID,
    "zeros": bytes(16), "view": lambda data: memoryview(data).toreadonly(), "malformed": _malformed,
    "Malformed": Malformed, "errors": (struct.error, IndexError, ValueError, OverflowError),
    "unreadable": _unreadable, "tag_too_long": tag_too_long, "tags_not_increasing": tags_not_increasing,
    "UNBOUNDED": UNBOUNDED,
}  # fmt: skip
"""Names in the generated source, beside those of the values' representation and of the classes."""


class ReaderSource(Source):
    """Generates a reader. Each `add_...` method emits the lines that read one part of a message.

    Args:
        title: Name of the reader in tracebacks.
        values: Representation of messages in Python.
        default_of: Returns the default of a field.
        class_of: Returns the class of a struct.
    """

    def __init__(
        self, title: str, values: Values, default_of: Callable[[Field], Any], class_of: Callable[[Struct], type]
    ) -> None:
        super().__init__(title, {**_GLOBALS, **values.names})
        self._values, self._default_of, self._class_of = values, default_of, class_of

    def compile_reader(self, message: Struct) -> Read:
        """Compile the reader of a message."""
        with self.block("def read(data, at, left=UNBOUNDED):"):
            with self.block("try:"):
                self.add_line("size = len(data)")
                self.add_struct(message, "value")
                self.add_line("return value, at")
            self.add_line("except Malformed: raise")
            self.add_line("except errors as error: unreadable(error, at)")
        read: Read = self.compile("read")
        return read

    def add_struct(self, definition: Struct, target: str) -> None:
        """Add the lines that read a struct into `target`. Neighbouring fields of fixed size are unpacked together."""
        variables = {field: self.new_name(field.name) for field in definition.fields}
        fixed_fields: list[Field] = []  # neighbouring fields of fixed size
        for field in definition.present:
            if field.tag is not None:
                continue
            if not field.is_array and self._values.format_character(field) is not None and field.max_value is None:
                fixed_fields.append(field)
                continue
            self._add_unpacking(fixed_fields, variables)
            fixed_fields = []
            self.add_field(field, variables[field])
        self._add_unpacking(fixed_fields, variables)
        if definition.is_flexible:
            self._add_tagged_fields([field for field in definition.present if field.tag is not None], variables)
        class_name = self.new_name(definition.name, self._class_of(definition))
        if self._values.is_tuple:
            for field in definition.fields:
                if not field.is_present:
                    self.add_line(f"{variables[field]} = {self._default_expression(field)}")
            self.add_line(f"{target} = new_tuple({class_name}, ({', '.join(variables.values())},))")
            return
        self.add_line(f"{target} = new({class_name})")
        for field in definition.present:
            self.add_line(f"{target}.{field.name} = {variables[field]}")

    def add_field(self, field: Field, name: str) -> None:
        """Add the lines that read one field by itself into the variable `name`."""
        if field.is_array:
            self._add_array(field, name)
        elif field.struct is None:
            self._add_primitive(field, name, is_nullable=field.is_nullable)
        elif field.is_nullable:
            null_marker = NULL_STRUCT if field.tag is None else NULL_TAGGED_STRUCT
            self.add_line("at += 1")
            self.add_line(f"if data[at - 1] == {null_marker}: {name} = None")
            with self.block("else:"):
                self.add_struct(field.struct, name)
        else:
            self.add_struct(field.struct, name)

    def _add_unpacking(self, fixed_fields: Sequence[Field], variables: Mapping[Field, str]) -> None:
        if not fixed_fields:
            return
        packed = struct.Struct(">" + "".join(self._values.format_character(field) or "" for field in fixed_fields))
        unpack = self.new_name("unpack", packed.unpack_from)
        self.add_line(f"{', '.join(variables[field] for field in fixed_fields)}, = {unpack}(data, at)")
        self.add_line(f"at += {packed.size}")
        for field in fixed_fields:
            name, conversion = variables[field], self._values.conversion(field)
            if conversion is not None:
                self.add_line(f"{name} = {conversion.read.format(name)}")
            if field.max_value is not None:
                message = f"f'{field.name.replace('_', ' ')} is {{{name}}}, expected 0 to {field.max_value}'"
                self.add_line(f"if not 0 <= {name} <= {field.max_value}: malformed({message}, at - {packed.size})")

    def _add_tagged_fields(self, tagged: Sequence[Field], variables: Mapping[Field, str]) -> None:
        for field in tagged:
            self.add_line(f"{variables[field]} = {self._default_expression(field)}")
        count, tag, size, end = (self.new_name(variable) for variable in ("count", "tag", "size", "end"))
        self.add_line("if data[at] == 0: at += 1")
        with self.block("else:"):
            self.add_line(f"{count}, at = read_uvarint(data, at)")
            self._add_element_limit(count)
            last = self.new_name("last")
            if self._values.is_tuple:
                self.add_line(f"{last} = -1")
            with self.block(f"for _ in range({count}):"):
                self.add_line(f"{tag}, at = read_uvarint(data, at)")
                if self._values.is_tuple:
                    self.add_line(f"if {tag} <= {last}: raise tags_not_increasing({tag}, {last}, at - 1)")
                    self.add_line(f"{last} = {tag}")
                self.add_line(f"{size}, at = read_uvarint(data, at)")
                self.add_line(f"{end} = at + {size}")
                self.add_line(f"if {end} > size: raise tag_too_long({tag}, {size}, data, at)")
                for field in tagged:
                    with self.block(f"if {tag} == {field.tag}:"):
                        self.add_field(field, variables[field])
                        message = f"f'tagged field {field.tag} does not fill its {{{size}}} bytes'"
                        self.add_line(f"if at != {end}: malformed({message}, {end} - {size})")
                self.add_line(f"at = {end}")

    def _default_expression(self, field: Field) -> str:
        default = self._default_of(field)
        return "None" if default is None else self.new_name("default", default)

    def _add_element_limit(self, count: str) -> None:
        self.add_line(f"left -= {count}")
        self.add_line(f"if left < 0: malformed({_TOO_MANY_ELEMENTS!r}, at)")

    def _add_array(self, field: Field, name: str) -> None:
        with self._add_length(field, f"the array {field.name}", name, is_nullable=field.is_nullable):
            min_size = max(self._min_element_size(field), 1)
            message = f"f'an array of {{{name}}} elements, but only {{size - at}} bytes are left'"
            self.add_line(f"if {name} * {min_size} > size - at: malformed({message}, at)")
            self._add_element_limit(name)
            format_character = self._values.format_character(field)
            if format_character is not None and self._values.conversion(field) is None:
                byte_count = self.new_name("byte_count")
                self.add_line(f"{byte_count} = {name} * {min_size}")
                self.add_line(f"{name} = unpack(f'>{{{name}}}{format_character}', data, at)")
                self.add_line(f"at += {byte_count}")
                return
            values, value = self.new_name("values"), self.new_name("value")
            self.add_line(f"{values} = []")
            with self.block(f"for {value} in range({name}):"):
                if field.struct is not None:
                    self.add_struct(field.struct, value)
                else:
                    self._add_primitive(field, value, is_nullable=False)
                self.add_line(f"{values}.append({value})")
            self.add_line(f"{name} = tuple({values})")

    def _add_primitive(self, field: Field, name: str, *, is_nullable: bool) -> None:
        if self._values.format_character(field) is not None:
            self._add_unpacking([field], {field: name})
            return
        with self._add_length(field, field.name, name, is_nullable=is_nullable, is_text=field.type == "string"):
            end = self.new_name("end")
            self.add_line(f"{end} = at + {name}")
            message = f"f'{field.name} of {{{name}}} bytes, but only {{size - at}} bytes are left'"
            self.add_line(f"if {end} > size: malformed({message}, at)")
            self.add_line(f"{name} = {_DECODERS[field.type].format(end)}")
            self.add_line(f"at = {end}")

    def _add_length(
        self, field: Field, described: str, name: str, *, is_nullable: bool, is_text: bool = False
    ) -> AbstractContextManager[None]:
        """Add the lines that read a length, or null. Returns the block for a value that is not null."""
        length_size = 1 if field.is_flexible else 2 if is_text else 4
        if field.is_flexible:
            self.add_line(f"{name} = data[at] - 1; at += 1")
            self.add_line(f"if {name} > 126: {name}, at = read_uvarint(data, at - 1); {name} -= 1")
        else:
            self.add_line(f"{name}, = {'i16' if is_text else 'i32'}(data, at); at += {length_size}")
        with self.block(f"if {name} < 0:"):
            # Kafka accepts any negative length as null, and stored records may contain such a length.
            if not self._values.is_tuple:
                message = f"f'{described} has the length {{{name}}}'"
                self.add_line(f"if {name} < -1: malformed({message}, at - {length_size})")
            self.add_line(f"{name} = None" if is_nullable else f"malformed('{described} is null', at - {length_size})")
        return self.block("else:")

    def _min_element_size(self, array: Field) -> int:
        """Return the minimal size of an element of an array, in bytes."""
        if array.struct is None:
            return self._min_size(array, is_array=False)
        plain = [field for field in array.struct.present if field.tag is None]
        return array.struct.is_flexible + sum(self._min_size(field, is_array=field.is_array) for field in plain)

    def _min_size(self, field: Field, *, is_array: bool) -> int:
        format_character = self._values.format_character(field)
        if format_character is not None and not is_array:
            return struct.calcsize(">" + format_character)
        if field.is_flexible or (field.struct is not None and not is_array):
            return 1
        return 2 if field.type == "string" and not is_array else 4
