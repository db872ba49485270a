"""Compiler of a message descriptor and a projection into a plan for the Protobuf kernel."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.varints import uvarint
from kafkalog_spark.typed.columns.projection import NOT_PROJECTED, ColumnTree
from kafkalog_spark.typed.protobuf import field_types, types
from kafkalog_spark.typed.protobuf.plan import MAX_ENUM_NAME, Absent, Kind, Plan, Slot
from kafkalog_spark.typed.protobuf.read_options import ProtobufReadOptions

MAX_SLOTS = 100_000  # of one descriptor
_NO_NUMBER = 1 << 40
"""Field numbers from here on stand for projected columns that the writer's descriptor does not have."""


class PlanCompiler:
    """Compiler of one descriptor. A message that is not projected is compiled once, however often it occurs.

    A column tree of None means that the part is not projected. A Spark type of None means that Spark has no column for
    it.
    """

    def __init__(self, plan: Plan, read_options: ProtobufReadOptions) -> None:
        self._plan, self._read_options = plan, read_options
        self._unprojected: dict[tuple[str, pa.DataType | None], int] = {}
        self._oneofs: dict[str, int] = {}
        self._enums: dict[str, dict[Slot, int]] = {}

    def message(self, descriptor: Any, tree: ColumnTree | None, spark_type: pa.DataType | None) -> int:
        """Compile a message and the messages in it; return its row in the plan's messages.

        Args:
            descriptor: Descriptor of the message.
            tree: Its column.
            spark_type: The struct that Spark makes of it.

        Raises:
            OptionError: If the plan becomes too large.
        """
        if tree is None and (descriptor.full_name, spark_type) in self._unprojected:
            return self._unprojected[descriptor.full_name, spark_type]
        row = [0, 0, NOT_PROJECTED if tree is None else tree.number]
        number = len(self._plan.messages)
        self._plan.messages.append(row)
        if tree is None:
            self._unprojected[descriptor.full_name, spark_type] = number
        fields = sorted(descriptor.fields, key=lambda field: field.number)
        slots = [self._slot(field, fields, tree, spark_type) for field in fields]
        if tree is not None:
            names = {field.name for field in fields}
            for i, field in enumerate(tree.type):
                if field.name not in names:
                    slot = [0] * len(Slot)
                    slot[Slot.NUMBER], slot[Slot.KIND] = _NO_NUMBER + i, Kind.INT32
                    slot[Slot.COLUMN], slot[Slot.ONEOF] = tree.children[i].number, -1
                    self._nulls(slot, tree.children[i])
                    slots.append(slot)
        if len(self._plan.rows) - self._plan.begin + len(slots) > MAX_SLOTS:
            raise OptionError(
                f"the message {descriptor.full_name} has more than {MAX_SLOTS:,} fields, those of its messages included"
            )
        row[0], row[1] = len(self._plan.rows), len(slots)
        self._plan.rows += slots
        return number

    def _nulls(self, slot: list[int], tree: ColumnTree) -> None:
        null_columns = tree.null_columns()
        slot[Slot.NULLS] = self._plan.add_table(null_columns)
        slot[Slot.NULLS_END] = slot[Slot.NULLS] + len(null_columns)

    def _slot(
        self, field: Any, fields: list[Any], tree: ColumnTree | None, spark_type: pa.DataType | None
    ) -> list[int]:
        i = -1 if tree is None else tree.type.get_field_index(field.name)
        column = tree.children[i] if tree is not None and i >= 0 else None
        slot = [0] * len(Slot)
        slot[Slot.NUMBER] = field.number
        slot[Slot.COLUMN] = slot[Slot.ELEMENT] = NOT_PROJECTED if column is None else column.number
        slot[Slot.REPEATED], slot[Slot.REQUIRED] = (
            int(field_types.is_repeated(field)),
            int(field_types.is_required(field)),
        )
        slot[Slot.ONEOF] = self._oneof(field, fields)
        field_type = _type_in(spark_type, field.name)
        in_map_entry = bool(field.containing_type.GetOptions().map_entry)
        inner = column
        if slot[Slot.REPEATED] and column is not None:
            inner = column.children[0]
            slot[Slot.ELEMENT] = inner.number
        elif column is not None:
            self._nulls(slot, column)
        if field.type == field_types.FieldType.MESSAGE:
            slot[Slot.ABSENT] = Absent.DEFAULT if in_map_entry else Absent.NULL
            if field_types.is_time(field.message_type, "Timestamp", "Duration"):
                slot[Slot.KIND], slot[Slot.CHECKED] = Kind.TIMESTAMP, int(field_type is not None)
            else:
                slot[Slot.KIND] = Kind.MESSAGE
                slot[Slot.MESSAGE] = self.message(field.message_type, inner, field_type)
            return slot
        slot[Slot.KIND] = int(types.scalar(field, self._read_options)[1])
        self._scalar(slot, field, in_map_entry, inner)
        return slot

    def _scalar(self, slot: list[int], field: Any, in_map_entry: bool, column: ColumnTree | None) -> None:
        repeated = bool(slot[Slot.REPEATED])
        presence = repeated or field.has_presence
        slot[Slot.IMPLICIT] = int(not presence and not in_map_entry)
        by_default = in_map_entry or (not repeated and field.has_default_value)
        slot[Slot.ABSENT] = (
            Absent.DEFAULT if by_default or (not presence and self._read_options.emit_defaults) else Absent.NULL
        )
        if field.type == field_types.FieldType.ENUM:
            name = field.enum_type.full_name
            if name not in self._enums:
                self._enums[name] = self._enum(field.enum_type)
            for at, value in self._enums[name].items():
                slot[at] = value
        elif field.type == field_types.FieldType.STRING:
            slot[Slot.CHECKED] = int(field_types.checks_utf8(field))
            if not slot[Slot.CHECKED] and column is not None:
                self._plan.java_texts.add(column.number)
        if not repeated:
            self._default(slot, field)

    def _enum(self, enum: Any) -> dict[Slot, int]:
        names: dict[int, str] = {}
        for value in enum.values:
            names.setdefault(value.number, value.name)
        table: list[int] = []
        for number in sorted(names):
            table += [number, self._plan.add_text(names[number].encode()), len(names[number].encode())]
        unknown = f"UNKNOWN_ENUM_VALUE_{enum.name}_".encode()
        if len(unknown) > MAX_ENUM_NAME - 12:
            raise OptionError(f"the enum {enum.full_name[:100]}… has a name of more than 480 bytes")
        return {
            Slot.ENUM: self._plan.add_table(table),
            Slot.SYMBOLS: len(names),
            Slot.CHECKED: int(enum.is_closed),
            Slot.UNKNOWN: self._plan.add_text(unknown),
            Slot.UNKNOWN_SIZE: len(unknown),
        }

    def _default(self, slot: list[int], field: Any) -> None:
        value, kind = field.default_value, slot[Slot.KIND]
        if isinstance(value, str | bytes):
            encoded = value.encode() if isinstance(value, str) else value
        elif kind in (Kind.DOUBLE, Kind.FLOAT):
            encoded = struct.pack("<d" if kind == Kind.DOUBLE else "<f", value)
        elif kind in (Kind.FIXED32, Kind.FIXED64):
            encoded = value.to_bytes(4 if kind == Kind.FIXED32 else 8, "little", signed=value < 0)
        else:
            zigzag = kind in (Kind.SINT32, Kind.SINT64)
            encoded = uvarint(((value << 1) ^ (value >> 63) if zigzag else value) & (2**64 - 1))
        slot[Slot.DEFAULT], slot[Slot.DEFAULT_SIZE] = self._plan.add_text(encoded), len(encoded)

    def _oneof(self, field: Any, fields: list[Any]) -> int:
        oneof = field.containing_oneof
        if oneof is None or len(oneof.fields) < 2:
            return -1
        if oneof.full_name not in self._oneofs:
            numbers = {field.number for field in oneof.fields}
            members = [i for i, field in enumerate(fields) if field.number in numbers]
            self._oneofs[oneof.full_name] = self._plan.add_table([len(members), *members])
        return self._oneofs[oneof.full_name]


def _type_in(spark_type: pa.DataType | None, name: str) -> pa.DataType | None:
    """Return the type of one value of a struct's field: the element of a list, the struct of a map's entries."""
    i = -1 if spark_type is None else spark_type.get_field_index(name)
    if spark_type is None or i < 0:
        return None
    type_ = spark_type.field(i).type
    if pa.types.is_map(type_):
        return pa.struct([("key", type_.key_type), ("value", type_.item_type)])
    return type_.value_type if pa.types.is_list(type_) else type_
