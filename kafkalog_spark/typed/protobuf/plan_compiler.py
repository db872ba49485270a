"""Compile a message descriptor and a projection into a plan for the Protobuf kernel."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.varints import uvarint
from kafkalog_spark.typed.columns.projection import NOT_PROJECTED, ColumnTree
from kafkalog_spark.typed.protobuf import types
from kafkalog_spark.typed.protobuf.plan import LONGEST_NAME, Absent, Kind, Plan, Slot

_NO_NUMBER = 1 << 40
"""Numbers of fields that no message has: projected columns that a writer's descriptor lacks."""
_MOST_SLOTS = 100_000


class _PlanMaker:
    """Makes the plan of one descriptor; messages of which no column is projected share theirs."""

    def __init__(self, plan: Plan, read_options: types.ProtobufReadOptions) -> None:
        self._plan, self._read_options = plan, read_options
        self._unprojected: dict[tuple[str, pa.DataType | None], int] = {}
        self._oneofs: dict[str, int] = {}
        self._enums: dict[str, dict[Slot, int]] = {}

    def message(self, descriptor: Any, tree: ColumnTree | None, has: pa.DataType | None) -> int:
        """The number of a message. has: the struct that Spark makes of it, None where Spark leaves it out."""
        if tree is None and (descriptor.full_name, has) in self._unprojected:
            return self._unprojected[descriptor.full_name, has]
        row = [0, 0, NOT_PROJECTED if tree is None else tree.number]
        number = len(self._plan.messages)
        self._plan.messages.append(row)
        if tree is None:
            self._unprojected[descriptor.full_name, has] = number
        fields = sorted(descriptor.fields, key=lambda field: field.number)
        slots = [self._slot(field, fields, tree, has) for field in fields]
        if tree is not None:
            names = {field.name for field in fields}
            for i, field in enumerate(tree.type):
                if field.name not in names:
                    slot = [0] * len(Slot)
                    slot[Slot.NUMBER], slot[Slot.KIND] = _NO_NUMBER + i, Kind.INT32
                    slot[Slot.COLUMN], slot[Slot.ONEOF] = tree.children[i].number, -1
                    self._nulls(slot, tree.children[i])
                    slots.append(slot)
        if len(self._plan.rows) - self._plan.begin + len(slots) > _MOST_SLOTS:
            raise OptionError(f"the message {descriptor.full_name} has more than {_MOST_SLOTS:,} fields in all")
        row[0], row[1] = len(self._plan.rows), len(slots)
        self._plan.rows += slots
        return number

    def _nulls(self, slot: list[int], tree: ColumnTree) -> None:
        under = tree.null_columns()
        slot[Slot.NULLS] = self._plan.table(under)
        slot[Slot.NULLS_END] = slot[Slot.NULLS] + len(under)

    def _slot(self, field: Any, fields: list[Any], tree: ColumnTree | None, has: pa.DataType | None) -> list[int]:
        at = -1 if tree is None else tree.type.get_field_index(field.name)
        part = tree.children[at] if tree is not None and at >= 0 else None
        slot = [0] * len(Slot)
        slot[Slot.NUMBER] = field.number
        slot[Slot.COLUMN] = slot[Slot.ELEMENT] = NOT_PROJECTED if part is None else part.number
        slot[Slot.REPEATED], slot[Slot.REQUIRED] = int(types.is_repeated(field)), int(types.is_required(field))
        slot[Slot.ONEOF] = self._oneof(field, fields)
        held = _type_in(has, field.name)
        of_map = bool(field.containing_type.GetOptions().map_entry)
        inner = part
        if slot[Slot.REPEATED] and part is not None:
            inner = part.children[0]
            slot[Slot.ELEMENT] = inner.number
        elif part is not None:
            self._nulls(slot, part)
        if field.type == types.FieldType.MESSAGE:
            slot[Slot.ABSENT] = Absent.DEFAULT if of_map else Absent.NULL
            if types.is_time(field.message_type, "Timestamp", "Duration"):
                slot[Slot.KIND], slot[Slot.CHECKED] = Kind.TIMESTAMP, int(held is not None)
            else:
                slot[Slot.KIND] = Kind.MESSAGE
                slot[Slot.MESSAGE] = self.message(field.message_type, inner, held)
            return slot
        slot[Slot.KIND] = int(types.scalar(field, self._read_options)[1])
        self._scalar(slot, field, of_map, inner)
        return slot

    def _scalar(self, slot: list[int], field: Any, of_map: bool, part: ColumnTree | None) -> None:
        repeated = bool(slot[Slot.REPEATED])
        presence = repeated or field.has_presence
        slot[Slot.IMPLICIT] = int(not presence and not of_map)
        by_default = of_map or (not repeated and field.has_default_value)
        slot[Slot.ABSENT] = (
            Absent.DEFAULT if by_default or (not presence and self._read_options.emit_defaults) else Absent.NULL
        )
        if field.type == types.FieldType.ENUM:
            name = field.enum_type.full_name
            if name not in self._enums:
                self._enums[name] = self._enum(field.enum_type)
            for at, value in self._enums[name].items():
                slot[at] = value
        elif field.type == types.FieldType.STRING:
            slot[Slot.CHECKED] = int(types.checks_utf8(field))
            if not slot[Slot.CHECKED] and part is not None:
                self._plan.java_texts.add(part.number)
        if not repeated:
            self._default(slot, field)

    def _enum(self, enum: Any) -> dict[Slot, int]:
        names: dict[int, str] = {}
        for value in enum.values:
            names.setdefault(value.number, value.name)
        table: list[int] = []
        for number in sorted(names):
            table += [number, self._plan.text(names[number].encode()), len(names[number].encode())]
        unknown = f"UNKNOWN_ENUM_VALUE_{enum.name}_".encode()
        if len(unknown) > LONGEST_NAME - 12:
            raise OptionError(f"the enum {enum.full_name[:100]}… has a name of more than 480 bytes")
        return {
            Slot.ENUM: self._plan.table(table),
            Slot.SYMBOLS: len(names),
            Slot.CHECKED: int(enum.is_closed),
            Slot.UNKNOWN: self._plan.text(unknown),
            Slot.UNKNOWN_SIZE: len(unknown),
        }

    def _default(self, slot: list[int], field: Any) -> None:
        value, kind = field.default_value, slot[Slot.KIND]
        if isinstance(value, str | bytes):
            written = value.encode() if isinstance(value, str) else value
        elif kind in (Kind.DOUBLE, Kind.FLOAT):
            written = struct.pack("<d" if kind == Kind.DOUBLE else "<f", value)
        elif kind in (Kind.FIXED32, Kind.FIXED64):
            written = value.to_bytes(4 if kind == Kind.FIXED32 else 8, "little", signed=value < 0)
        else:
            zigzag = kind in (Kind.SINT32, Kind.SINT64)
            written = uvarint(((value << 1) ^ (value >> 63) if zigzag else value) & (2**64 - 1))
        slot[Slot.DEFAULT], slot[Slot.DEFAULT_SIZE] = self._plan.text(written), len(written)

    def _oneof(self, field: Any, fields: list[Any]) -> int:
        oneof = field.containing_oneof
        if oneof is None or len(oneof.fields) < 2:
            return -1
        if oneof.full_name not in self._oneofs:
            numbers = {field.number for field in oneof.fields}
            members = [i for i, field in enumerate(fields) if field.number in numbers]
            self._oneofs[oneof.full_name] = self._plan.table([len(members), *members])
        return self._oneofs[oneof.full_name]


def _type_in(has: pa.DataType | None, name: str) -> pa.DataType | None:
    """The type of a field in a struct, without the list around it: of a map the struct of its entries."""
    at = -1 if has is None else has.get_field_index(name)
    if has is None or at < 0:
        return None
    type_ = has.field(at).type
    if pa.types.is_map(type_):
        return pa.struct([("key", type_.key_type), ("value", type_.item_type)])
    return type_.value_type if pa.types.is_list(type_) else type_
