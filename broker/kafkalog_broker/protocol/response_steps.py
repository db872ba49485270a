"""Responses that are large, written in steps: kio's writers are in Python, some microseconds a value.

`write_in_steps` is a generator as `request_steps.read_in_steps` is one. Structs without arrays are left to kio.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator
from functools import cache
from typing import Any, NamedTuple, Protocol

from kio.serial import entity_writer
from kio.serial._implicit_defaults import get_tagged_field_default
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional
from kio.serial._serialize import get_field_writer, get_writer
from kio.serial.writers import write_tagged_field

from kafkalog_broker.protocol.frames import legacy_count, uvarint

_NULL = b"\xff\xff\xff\xff"

STEP_ELEMENTS = 20
LARGE_ELEMENTS = 200
"""Elements of arrays, some 10 microseconds each to write: what has fewer is written at once."""

Steps = Generator[None, None, None]


class Buffer(Protocol):
    def write(self, data: bytes, /) -> int: ...


Write = Callable[[Any, Any], None]


class _Array(NamedTuple):
    name: str
    plan: _Plan | None  # of structs that have arrays
    write: Write  # else
    flexible: bool


class _Struct(NamedTuple):
    name: str
    plan: _Plan
    nullable: bool


class _Plan(NamedTuple):
    """How the values of a class are written: what kio writes at once, arrays, and structs that have arrays."""

    fields: list[tuple[str, Write] | _Array | _Struct]
    tags: Write | None


def is_large(response: Any) -> bool:
    """Whether it has more than LARGE_ELEMENTS."""
    return _elements(_plan(_class(response)), response, 0) > LARGE_ELEMENTS


def write_in_steps(response: Any, out: Buffer) -> Steps:
    """A generator that writes `response`, a value of one of kio's classes. It raises what kio's writers raise.

    An array that is a list, and not a tuple, is taken apart while it is written: to give up a hundred thousand objects
    together takes 20 ms.
    """
    return _write(_plan(_class(response)), response, out)


def prepare_writing(kind: Any) -> None:
    """Make what `write_in_steps` needs for this class, once. May run in a thread."""
    _plan(kind)


def _class(response: Any) -> Any:
    return type(response)


def _elements(plan: _Plan, value: Any, count: int) -> int:
    """`count` and the elements in `value`; counting ends above LARGE_ELEMENTS."""
    for field in plan.fields:
        if isinstance(field, _Array):
            elements = getattr(value, field.name) or ()
            count += len(elements)
            if field.plan is not None:
                for element in elements:
                    if count > LARGE_ELEMENTS:
                        return count
                    count = _elements(field.plan, element, count)
        elif isinstance(field, _Struct):
            inner = getattr(value, field.name)
            if inner is not None:
                count = _elements(field.plan, inner, count)
    return count


def _write(plan: _Plan, value: Any, out: Buffer) -> Steps:
    for field in plan.fields:
        if isinstance(field, _Array):
            elements = getattr(value, field.name)
            count = -1 if elements is None else len(elements)
            out.write(uvarint(count + 1) if field.flexible else _NULL if count < 0 else legacy_count(count))
            for at, element in enumerate(_given_up(elements or ())):
                if at % STEP_ELEMENTS == STEP_ELEMENTS - 1:
                    yield
                if field.plan is None:
                    field.write(out, element)
                else:
                    yield from _write(field.plan, element, out)
        elif isinstance(field, _Struct):
            inner = getattr(value, field.name)
            if field.nullable:  # KIP-893: one byte says whether it is there
                out.write(b"\xff" if inner is None else b"\x01")
            if inner is not None:
                yield from _write(field.plan, inner, out)
        else:
            name, write = field
            write(out, getattr(value, name))
    if plan.tags is not None:
        plan.tags(out, value)


def _given_up(elements: Any) -> Iterator[Any]:
    """The elements; of a list, each is gone from it when the next is asked for."""
    if not isinstance(elements, list):
        yield from elements
        return
    elements.reverse()
    while elements:
        yield elements.pop()


@cache
def _plan(kind: type[Any]) -> _Plan:
    flexible = kind.__flexible__
    fields: list[tuple[str, Write] | _Array | _Struct] = []
    tagged: list[dataclasses.Field[Any]] = []
    for field in dataclasses.fields(kind):
        shape = classify_field(field)
        if "tag" in field.metadata:
            tagged.append(field)
        elif isinstance(shape, EntityTupleField):
            inner = _plan(shape.type_)
            fields.append(
                _Array(field.name, inner if _has_arrays(inner) else None, entity_writer(shape.type_), flexible)
            )
        elif shape.is_array:
            fields.append(_Array(field.name, None, get_writer(field.metadata["kafka_type"], flexible, False), flexible))
        elif isinstance(shape, EntityField) and _has_arrays(_plan(shape.type_)):
            fields.append(_Struct(field.name, _plan(shape.type_), is_optional(field)))
        else:
            fields.append((field.name, get_field_writer(field, flexible, False, False)))
    return _Plan(fields, _tags_writer(tagged) if flexible else None)


def _has_arrays(plan: _Plan) -> bool:
    return any(isinstance(field, _Array | _Struct) for field in plan.fields)


def _tags_writer(tagged: list[dataclasses.Field[Any]]) -> Write:
    """A writer of an entity's tagged fields, in rising order; those that have their default are left out."""
    fields = [
        (field.metadata["tag"], field.name, get_field_writer(field, True, False, True), get_tagged_field_default(field))
        for field in sorted(tagged, key=lambda field: int(field.metadata["tag"]))
    ]

    def write(out: Any, entity: Any) -> None:
        present = [
            (tag, one, value) for tag, name, one, default in fields if (value := getattr(entity, name)) != default
        ]
        out.write(uvarint(len(present)))
        for tag, one, value in present:
            write_tagged_field(out, tag, one, value)

    return write
