"""Readers and writers of messages: Python source generated from the structs of `definitions`.

Readers trust no byte. An array announces no more elements than the remaining bytes have room for, and all arrays of a
message together no more than the caller allows. Null is accepted only where the definition has it. The value of a
tagged field (KIP-482) has exactly the size in front of it; tagged fields that are not known are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, NoReturn
from uuid import UUID

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.format.messages.classes import StructValue
from kafkalog_spark.format.messages.definitions import (
    DEFAULT_STRUCT,
    Field,
    Struct,
    ToAttribute,
    plain_attribute,
)
from kafkalog_spark.format.messages.source import Source
from kafkalog_spark.format.messages.wire import Malformed, ends_early, tag_does_not_rise, tag_too_long
from kafkalog_spark.format.varints import read_uvarint, uvarint

UNBOUNDED = 1 << 62  # elements of arrays in a message, where only its size bounds them
OWN_PIECE = 1024  # bytes from which on an encoded array is not copied: thousands of topics have the same configuration
_FEW = 4  # numbers of an array from which on packing them at once is faster than one by one

_NUMBERS = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d",
}  # fmt: skip
_LONGEST_STRING = 2**15 - 1  # where the length is not compact

Body = bytes | memoryview
Read = Callable[..., tuple[Any, int]]
"""(bytes, position, number of elements that all arrays together may have; unbounded if left out) to the value that
begins there and the position after it. Raises Malformed."""
Write = Callable[[Any, bytearray], Any]
"""(value, bytes in front of it) to both: a list of bytes-like pieces, or a bytearray if values are tuples.

Raises TypeError, AttributeError, ValueError, struct.error or InvalidRecord for a value that the message cannot hold.
"""


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


def _uuid_bytes(value: UUID | None) -> bytes:
    return bytes(16) if value is None else value.bytes


_UUID = Conversion("16s", "UUID(bytes={0})", "{0}.bytes", lambda _: UUID(int=0), "UUID")
_UUID_OR_NONE = Conversion(
    "16s", "None if {0} == zeros else UUID(bytes={0})", "uuid_bytes({0})", lambda _: None, "UUID | None"
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
        return _ReaderSource(self, self._values, "reader").reader()

    @cached_property
    def write(self) -> Write:
        source = _WriterSource(self, self._values, "writer")
        return source.writer(lambda: source.struct(self.struct, "value"))

    def array_writer(self, array: Field) -> Write:
        """The writer of the value of one array in the message."""
        source = _WriterSource(self, self._values, f"writer of {array.name}")
        return source.writer(lambda: source.field(array, "value"))

    def class_of(self, definition: Struct) -> type:
        return self._by_struct[definition]

    def default(self, one: Field) -> Any:
        if one.default is DEFAULT_STRUCT and one.struct is not None:
            made: Any = self._by_struct[one.struct]
            inner = one.struct.fields if self._values.is_tuple else one.struct.present
            return made(**{one.name: self.default(one) for one in inner})
        conversion = None if one.is_array else self._values.conversion(one)
        return one.default if conversion is None else conversion.from_default(one.default)

    def _class_of(self, definition: Struct) -> type:
        for inner in definition.fields:
            if inner.struct is not None and inner.struct not in self._by_struct:
                self._class_of(inner.struct)
        defaults = {one.name: self.default(one) for one in definition.fields}
        annotations = {one.name: self._annotation(one) for one in definition.fields}
        made = self._values.make_class(definition, defaults, annotations)
        if issubclass(made, StructValue):
            made._struct, made._message = definition, self
        self._by_struct[definition] = made
        return made

    def _annotation(self, one: Field) -> str:
        conversion = self._values.conversion(one)
        kind = one.type if one.struct is not None else _ANNOTATIONS[one.type] if conversion is None else conversion[-1]
        whole = f"tuple[{kind}, ...]" if one.is_array else kind
        return f"{whole} | None" if one.is_nullable and not whole.endswith("None") else whole


_ANNOTATIONS = {
    **dict.fromkeys(_NUMBERS, "int"), "bool": "bool", "float64": "float", "string": "str", "bytes": "bytes",
    "records": "memoryview",
}  # fmt: skip


class _MessageSource(Source):
    """Source of a function that walks through the fields of a message."""

    def __init__(self, message: CompiledMessage, values: Values, what: str) -> None:
        found = message.struct
        super().__init__(f"{what}, {found.name} version {found.version}", {**self.NAMES, **values.names})
        self._message, self._values = message, values

    NAMES: ClassVar[Mapping[str, Any]] = {}

    def _form(self, one: Field) -> str | None:
        """Format character of a field, or of an array's elements; None if their size is not fixed."""
        conversion = self._values.conversion(one)
        return _NUMBERS.get(one.type) if conversion is None else conversion.form

    def _is_fixed(self, one: Field) -> bool:
        return not one.is_array and self._form(one) is not None


# ---- writing


def _text_size(size: int) -> bytes:
    if size > _LONGEST_STRING:
        raise InvalidRecord(f"{size} bytes of text, at most {_LONGEST_STRING} fit")
    return size.to_bytes(2, "big", signed=True)


class _WriterSource(_MessageSource):
    NAMES: ClassVar = {
        "uuid_bytes": _uuid_bytes, "uvarint": uvarint, "text_size": _text_size, "i32": struct.Struct(">i").pack,
        "pack": struct.pack,
    }  # fmt: skip

    def writer(self, body: Callable[[], None]) -> Write:
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
            form = self._form(one)
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
            form = self._form(one)
            if form is None or self._values.conversion(one) is not None:
                self._elements(one, array)
                return
            with self.block(f"if len({array}) >= {_FEW}:"):
                self.line(f"out += pack(f'>{{len({array})}}{form}', *{array})")
            with self.block("else:"):
                self._elements(one, array)

    def _elements(self, one: Field, array: str) -> None:
        element = self.name("element")
        with self.block(f"for {element} in {array}:"):
            if one.struct is not None:
                self.struct(one.struct, element)
            else:
                self._primitive(one, element, is_nullable=False)

    def _primitive(self, one: Field, value: str, *, is_nullable: bool) -> None:
        form = self._form(one)
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
            default = self._message.default(one)
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


# ---- reading


def _malformed(why: str, position: int) -> NoReturn:
    raise Malformed(why, position) from None


def _unreadable(error: Exception, position: int) -> NoReturn:
    """error: of reading beyond the end, or of a value that is not valid."""
    if isinstance(error, struct.error | IndexError):
        raise ends_early(position) from None
    not_text = "a string is not UTF-8: " if isinstance(error, UnicodeDecodeError) else ""
    raise Malformed(f"{not_text}{error}", position) from None


_TOO_MANY = "it names more things than one request may: send several smaller ones"
_SIZED = {"string": "str(data[at:{}], 'utf-8')", "bytes": "bytes(data[at:{}])", "records": "view(data)[at:{}]"}


class _ReaderSource(_MessageSource):
    NAMES: ClassVar = {
        "read_uvarint": read_uvarint, "i16": struct.Struct(">h").unpack_from, "i32": struct.Struct(">i").unpack_from,
        "unpack": struct.unpack_from, "new": object.__new__, "new_tuple": tuple.__new__, "UUID": UUID,
        "zeros": bytes(16), "view": lambda data: memoryview(data).toreadonly(), "malformed": _malformed,
        "Malformed": Malformed, "errors": (struct.error, IndexError, ValueError, OverflowError),
        "unreadable": _unreadable, "tag_too_long": tag_too_long, "tag_does_not_rise": tag_does_not_rise,
        "UNBOUNDED": UNBOUNDED,
    }  # fmt: skip

    def reader(self) -> Read:
        with self.block("def read(data, at, left=UNBOUNDED):"):
            with self.block("try:"):
                self.line("size = len(data)")
                self.struct(self._message.struct, "value")
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
            if self._is_fixed(one) and one.most is None:
                run.append(one)
                continue
            self._unpack(run, names)
            run = []
            self.field(one, names[one])
        self._unpack(run, names)
        if definition.is_flexible:
            self._tags([one for one in definition.present if one.tag is not None], names)
        made = self.name(definition.name, self._message.class_of(definition))
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
        layout = struct.Struct(">" + "".join(self._form(one) or "" for one in run))
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
        default = self._message.default(one)
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
            form = self._form(one)
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
        if self._form(one) is not None:
            self._unpack([one], {one: name})
            return
        with self._length(one, one.name, name, is_nullable=is_nullable, is_text=one.type == "string"):
            end = self.name("end")
            self.line(f"{end} = at + {name}")
            why = f"f'{one.name} of {{{name}}} bytes, {{size - at}} bytes are left'"
            self.line(f"if {end} > size: malformed({why}, at)")
            self.line(f"{name} = {_SIZED[one.type].format(end)}")
            self.line(f"at = {end}")

    def _length(self, one: Field, what: str, name: str, *, is_nullable: bool, is_text: bool = False) -> Any:
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
        form = self._form(one)
        if form is not None and not is_array:
            return struct.calcsize(">" + form)
        if one.is_flexible or (one.struct is not None and not is_array):
            return 1
        return 2 if one.type == "string" and not is_array else 4
