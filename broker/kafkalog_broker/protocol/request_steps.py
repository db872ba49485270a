"""Large requests, read in steps: kio's reader takes a whole request at once, and holds the interpreter meanwhile.

`read_in_steps` is a generator: it yields after every STEP_VALUES values, some 0.1 ms of work, so that whoever drives it
may let others go. It returns what kio's reader returns, a value of kio's class, and refuses what `array_lengths`
refuses. Structs without arrays are left to kio.

What a request may hold is bounded before it is made: MAX_VALUES values. Of arrays with more than STEP_VALUES elements,
numbers come in an `array.array`, four bytes each instead of forty, and structs in a list, so that `given_up` can take
the request apart in steps: to free a million values at once takes 50 ms.
"""

from __future__ import annotations

import dataclasses
import sys
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

from kio.serial import entity_reader
from kio.serial._implicit_defaults import get_tagged_field_default
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    FieldClass,
    classify_field,
    get_schema_field_type,
    is_optional,
)
from kio.serial._parse import get_reader

from kafkalog_broker.errors import MalformedRequest
from kafkalog_broker.protocol.array_lengths import NULL_STRUCT, array_count, smallest_size
from kafkalog_broker.protocol.frames import read_uvarint

Body = bytes | memoryview
Read = Callable[[Body, int], tuple[Any, int]]
"""kio's readers: (request, position) to the value and its size."""

Steps = Generator[None, None, Any]
T = TypeVar("T")

STEP_VALUES = 200
_COPIED_AS_ONE = 100
"""Numbers that are copied while kio reads one value."""

FREED_AT_ONCE = 1000
"""Values that are freed in a step: 0.1 ms."""

MAX_VALUES = 1_000_000
"""Fields and elements of arrays in a request: of 40 bytes or so each, in memory. A Fetch of 100,000 partitions has
800,000, an OffsetCommit that fits into a batch of __consumer_offsets 100,000."""


class _Reading:
    """One request while it is read."""

    __slots__ = ("data", "due", "position", "values")

    def __init__(self, data: Body, position: int) -> None:
        self.data = data
        self.position = position
        self.values = 0  # so far, with the elements that arrays announce
        self.due = STEP_VALUES  # values until the next step

    def take(self, read: Read) -> Any:
        value, size = read(self.data, self.position)
        self.position += size
        return value

    def announce(self, values: int) -> None:
        """There will be so many more values. Raises MalformedRequest when they are too many."""
        self.values += values
        if self.values > MAX_VALUES:
            raise MalformedRequest(
                f"more than {MAX_VALUES} values up to byte {self.position} of {len(self.data)}: "
                "send several smaller requests"
            )


class _Field(NamedTuple):
    name: str
    read: Read | None  # what kio reads at once
    steps: Callable[[_Reading], Steps] | None  # the rest


class _Plan(NamedTuple):
    """How the values of a class are read. `whole`: kio's reader, where there is no array in it."""

    kind: type[Any]
    fields: list[_Field]
    tagged: dict[int, _Field]
    defaults: dict[str, Any]  # of the tagged fields
    flexible: bool
    weight: int  # values
    whole: Read | None


def read_in_steps(kind: Any, data: Body, position: int) -> Steps:
    """A generator that returns the `kind` at `position`. It raises MalformedRequest and what kio's readers raise."""
    return _read_struct(_plan(kind), _Reading(data, position))


def prepare_reading(kind: Any) -> None:
    """Make what `read_in_steps` needs for this class, once. May run in a thread."""
    _plan(kind)


def _read_struct(plan: _Plan, reading: _Reading) -> Steps:
    if plan.whole is not None:
        try:
            return reading.take(plan.whole)
        except KeyError:  # a tag that kio does not know
            pass
    return (yield from _read_fields(plan, reading))


def _read_fields(plan: _Plan, reading: _Reading) -> Steps:
    values = dict(plan.defaults)
    for field in plan.fields:
        values[field.name] = reading.take(field.read) if field.read is not None else (yield from _steps(field, reading))
    if plan.flexible:
        data = reading.data
        count, reading.position = read_uvarint(data, reading.position)
        for _ in range(count):
            tag, position = read_uvarint(data, reading.position)
            size, reading.position = read_uvarint(data, position)
            end = reading.position + size
            if end > len(data):
                raise MalformedRequest(f"tagged field {tag} of {size} bytes ends after the request of {len(data)}")
            known = plan.tagged.get(tag)
            if known is not None:
                read = known.read
                values[known.name] = reading.take(read) if read is not None else (yield from _steps(known, reading))
                if reading.position != end:
                    raise MalformedRequest(f"tagged field {tag} does not fill its {size} bytes")
            reading.position = end
            reading.due -= 1
            if reading.due <= 0:
                reading.due = STEP_VALUES
                yield
    return plan.kind(**values)


def _steps(field: _Field, reading: _Reading) -> Steps:
    assert field.steps is not None
    return field.steps(reading)


@cache
def _plan(kind: Any) -> _Plan:
    flexible = kind.__flexible__
    fields, tagged, defaults = [], {}, {}
    has_arrays = False
    for field in dataclasses.fields(kind):
        tag = field.metadata.get("tag")
        shape = classify_field(field)
        if tag is None:
            fields.append(_field(field, shape, flexible=flexible, nullable=is_optional(field)))
        else:  # the value of a tagged field is never null by itself
            tagged[tag] = _field(field, shape, flexible=True, nullable=shape.is_array and is_optional(field))
            default = field.default
            defaults[field.name] = get_tagged_field_default(field) if default is dataclasses.MISSING else default
        has_arrays |= shape.is_array or (isinstance(shape, EntityField) and _plan(shape.type_).whole is None)
    whole = None if has_arrays or tagged else entity_reader(kind)
    return _Plan(kind, fields, tagged, defaults, flexible, len(fields) + 1, whole)


def _field(field: dataclasses.Field[Any], shape: FieldClass, *, flexible: bool, nullable: bool) -> _Field:
    if shape.is_array:
        return _Field(field.name, None, _array_steps(field, shape, flexible=flexible, nullable=nullable))
    if isinstance(shape, EntityField):
        return _Field(field.name, None, _struct_steps(_plan(shape.type_), nullable=nullable))
    return _Field(field.name, get_reader(get_schema_field_type(field), flexible, nullable), None)


def _struct_steps(plan: _Plan, *, nullable: bool) -> Callable[[_Reading], Steps]:
    def steps(reading: _Reading) -> Steps:
        reading.announce(plan.weight)
        if nullable:  # KIP-893: one byte says whether it is there
            there = reading.data[reading.position]
            reading.position += 1
            if there == NULL_STRUCT:
                return None
        return (yield from _read_struct(plan, reading))

    return steps


def given_up(value: Any) -> Steps:
    """A generator that takes the large arrays of a request apart, in steps. Nobody may need the request any more."""
    if isinstance(value, list):
        kind: Any = type(value[0]) if value else None
        nested = bool(_structs_of(kind))
        while value:
            if nested:
                yield from given_up(value[-1])
                value.pop()
            else:
                del value[-FREED_AT_ONCE:]
                yield
    elif isinstance(value, tuple):
        for element in value:
            yield from given_up(element)
    else:
        kind = type(value)
        for name in _structs_of(kind):
            yield from given_up(getattr(value, name))


@cache
def _structs_of(kind: type[Any]) -> list[str]:
    """The fields of a class that hold structs; none of what is no struct."""
    if not dataclasses.is_dataclass(kind):
        return []
    shapes = ((field.name, classify_field(field)) for field in dataclasses.fields(kind))
    return [name for name, shape in shapes if shape.is_array or isinstance(shape, EntityField)]


def taken(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The elements of an array of a request, in order, `size` at a time, which are gone from a large array then: what
    is made of them need not be in memory at the same time."""
    if not isinstance(values, list):
        for at in range(0, len(values), size):
            yield values[at : at + size]
        return
    values.reverse()
    while values:
        some = values[-size:]
        del values[-size:]
        some.reverse()
        yield some


_INTEGERS = {"int8": "b", "int16": "h", "int32": "i"}
"""Their sizes are those of C's types, everywhere that CPython runs."""


def _integers(reading: _Reading, count: int, code: str) -> Steps:
    """Numbers need no reader of kio's: they are copied."""
    values = array(code)
    end = reading.position + count * values.itemsize
    values.frombytes(reading.data[reading.position : end])
    reading.position = end
    if sys.byteorder == "little":
        values.byteswap()
    reading.due -= count // _COPIED_AS_ONE
    if reading.due <= 0:
        reading.due = STEP_VALUES
        yield
    return values if count > STEP_VALUES else tuple(values)


def _array_steps(
    field: dataclasses.Field[Any], shape: FieldClass, *, flexible: bool, nullable: bool
) -> Callable[[_Reading], Steps]:
    smallest = smallest_size(field, flexible=flexible)
    plan: _Plan | None = None
    read: Read | None
    integers = None
    if isinstance(shape, EntityTupleField):
        plan = _plan(shape.type_)
        read, weight = plan.whole, plan.weight
    else:
        read, weight = get_reader(get_schema_field_type(field), flexible, False), 1
        integers = _INTEGERS.get(get_schema_field_type(field))

    def steps(reading: _Reading) -> Steps:
        data = reading.data
        count, position = array_count(
            data, reading.position, field.name, smallest, flexible=flexible, nullable=nullable
        )
        reading.position = position
        if count < 0:
            return None
        reading.announce(count * weight)
        if integers is not None:
            return (yield from _integers(reading, count, integers))
        values = []
        for _ in range(count):
            if reading.due <= 0:
                reading.due = STEP_VALUES
                yield
            reading.due -= weight
            if read is not None:
                try:
                    value, size = read(data, reading.position)
                    reading.position += size
                except KeyError:  # a tag that kio does not know
                    if plan is None:
                        raise
                    value = yield from _read_fields(plan, reading)
            else:
                assert plan is not None
                value = yield from _read_fields(plan, reading)
            values.append(value)
        return values if count > STEP_VALUES else tuple(values)

    return steps
