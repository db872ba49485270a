"""Compiles a message descriptor and a projection into the plan that the Protobuf kernel runs (`plan.py`).

The plan has a row of `messages` for each message, and a slot for each field. A slot of a message field refers to the
row of that message.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.varints import uvarint
from kafkalog_spark.typed.columns.projection import NOT_PROJECTED, ColumnTree
from kafkalog_spark.typed.protobuf import field_types, types
from kafkalog_spark.typed.protobuf.plan import MAX_ENUM_NAME, Absent, Kind, Message, Plan, Slot
from kafkalog_spark.typed.protobuf.read_options import ProtobufReadOptions

MAX_SLOTS = 100_000
"""Maximum number of slots of one root message and the messages in it."""

_MAX_NUMBER_DIGITS = 12  # room for an int32 with its sign
_MISSING_FIELD_NUMBERS_FROM = 1 << 40
"""Base of the artificial field numbers of projected columns that the descriptor has no field for; the column's index is
added."""


class PlanCompiler:
    """Compiles one root message. A message that is not projected is compiled once, however often it occurs.

    A column of None means that the message or field is not projected. A Spark type of None means that Spark has no
    column for it.
    """

    def __init__(self, plan: Plan, read_options: ProtobufReadOptions) -> None:
        self._plan, self._read_options = plan, read_options
        self._root_name: str | None = None
        self._unprojected_rows: dict[tuple[str, pa.DataType | None], int] = {}
        """Row of each message that is not projected, by full name and Spark type."""
        self._oneof_tables: dict[str, int] = {}
        """`Slot.ONEOF` of each oneof, by full name."""
        self._slot_values_of_enums: dict[str, dict[Slot, int]] = {}
        """Slot values that every field of an enum shares, by the enum's full name."""

    def compile_message(self, descriptor: Any, column: ColumnTree | None, spark_type: pa.DataType | None) -> int:
        """Compile a message and the messages in it; return its row in the plan's messages.

        Args:
            descriptor: Descriptor of the message.
            column: Its column.
            spark_type: The struct that Spark reads it as.

        Raises:
            OptionError: If the plan becomes too large.
        """
        self._root_name = self._root_name or descriptor.full_name
        key = (descriptor.full_name, spark_type)
        if column is None and key in self._unprojected_rows:
            return self._unprojected_rows[key]
        row_number = len(self._plan.messages)
        message = [0] * len(Message)
        message[Message.COLUMN] = NOT_PROJECTED if column is None else column.number
        self._plan.messages.append(message)
        if column is None:
            self._unprojected_rows[key] = row_number
        fields = sorted(descriptor.fields, key=lambda field: field.number)
        slots = [self._slot(field, fields, column, spark_type) for field in fields]
        if column is not None:
            slots += self._slots_of_missing_fields(column, {field.name for field in fields})
        if len(self._plan.slots) - self._plan.begin + len(slots) > MAX_SLOTS:
            raise OptionError(
                f"the message {self._root_name} has more than {MAX_SLOTS:,} fields, including those of nested messages"
            )
        message[Message.START], message[Message.SLOTS] = len(self._plan.slots), len(slots)
        self._plan.slots += slots
        return row_number

    def _slots_of_missing_fields(self, column: ColumnTree, names: set[str]) -> list[list[int]]:
        """Return slots that fill with nulls the columns whose fields are not among `names`."""
        slots = []
        for i, field in enumerate(column.type):
            if field.name not in names:
                slot = [0] * len(Slot)
                slot[Slot.NUMBER] = _MISSING_FIELD_NUMBERS_FROM + i
                slot[Slot.KIND] = Kind.INT32
                slot[Slot.COLUMN] = column.children[i].number
                slot[Slot.ONEOF] = -1
                self._set_null_columns(slot, column.children[i])
                slots.append(slot)
        return slots

    def _set_null_columns(self, slot: list[int], column: ColumnTree) -> None:
        null_columns = column.null_columns()
        slot[Slot.NULLS] = self._plan.add_table(null_columns)
        slot[Slot.NULLS_END] = slot[Slot.NULLS] + len(null_columns)

    def _slot(
        self, field: Any, fields: list[Any], message_column: ColumnTree | None, spark_type: pa.DataType | None
    ) -> list[int]:
        """Return the slot of a field.

        Args:
            field: Descriptor of the field.
            fields: All fields of its message, sorted by number.
            message_column: Column of the message.
            spark_type: The struct that Spark reads the message as.
        """
        column = None if message_column is None else message_column.field(field.name)
        is_repeated = field_types.is_repeated(field)
        value_column = column.children[0] if is_repeated and column is not None else column
        slot = [0] * len(Slot)
        slot[Slot.NUMBER] = field.number
        slot[Slot.COLUMN] = NOT_PROJECTED if column is None else column.number
        slot[Slot.ELEMENT] = NOT_PROJECTED if value_column is None else value_column.number
        slot[Slot.REPEATED] = int(is_repeated)
        slot[Slot.REQUIRED] = int(field_types.is_required(field))
        slot[Slot.ONEOF] = self._oneof_table(field, fields)
        if not is_repeated and column is not None:
            self._set_null_columns(slot, column)
        in_map_entry = bool(field.containing_type.GetOptions().map_entry)
        if field.type == field_types.FieldType.MESSAGE:
            value_type = _value_type(spark_type, field.name)
            slot[Slot.ABSENT] = Absent.DEFAULT if in_map_entry else Absent.NULL
            if field_types.is_time(field.message_type, "Timestamp", "Duration"):
                slot[Slot.KIND] = Kind.TIMESTAMP
                slot[Slot.CHECKED] = int(value_type is not None)
            else:
                slot[Slot.KIND] = Kind.MESSAGE
                slot[Slot.MESSAGE] = self.compile_message(field.message_type, value_column, value_type)
        else:
            slot[Slot.KIND] = int(types.scalar(field, self._read_options).kind)
            self._set_scalar(slot, field, in_map_entry, value_column)
        return slot

    def _set_scalar(self, slot: list[int], field: Any, in_map_entry: bool, column: ColumnTree | None) -> None:
        is_repeated = bool(slot[Slot.REPEATED])
        is_implicit = not is_repeated and not field.has_presence
        slot[Slot.IMPLICIT] = int(is_implicit and not in_map_entry)
        has_default = (
            in_map_entry
            or (not is_repeated and field.has_default_value)
            or (is_implicit and self._read_options.emit_defaults)
        )
        slot[Slot.ABSENT] = Absent.DEFAULT if has_default else Absent.NULL
        if field.type == field_types.FieldType.ENUM:
            name = field.enum_type.full_name
            if name not in self._slot_values_of_enums:
                self._slot_values_of_enums[name] = self._enum_slot_values(field.enum_type)
            for slot_column, value in self._slot_values_of_enums[name].items():
                slot[slot_column] = value
        elif field.type == field_types.FieldType.STRING:
            slot[Slot.CHECKED] = int(field_types.checks_utf8(field))
            if not slot[Slot.CHECKED] and column is not None:
                self._plan.java_texts.add(column.number)
        if not is_repeated:
            self._set_default(slot, field)

    def _enum_slot_values(self, enum: Any) -> dict[Slot, int]:
        """Add the symbols of an enum to the plan; return the slot values that its fields share."""
        names: dict[int, str] = {}
        for value in enum.values:
            names.setdefault(value.number, value.name)
        table: list[int] = []
        for number in sorted(names):
            name = names[number].encode()
            table += [number, self._plan.add_text(name), len(name)]
        unknown_prefix = f"UNKNOWN_ENUM_VALUE_{enum.name}_".encode()
        longest_prefix = MAX_ENUM_NAME - _MAX_NUMBER_DIGITS
        if len(unknown_prefix) > longest_prefix:
            longest_name = longest_prefix - (len(unknown_prefix) - len(enum.name.encode()))
            raise OptionError(f"the enum {enum.full_name[:100]}… has a name of more than {longest_name} bytes")
        return {
            Slot.ENUM: self._plan.add_table(table),
            Slot.SYMBOLS: len(names),
            Slot.CHECKED: int(enum.is_closed),
            Slot.UNKNOWN: self._plan.add_text(unknown_prefix),
            Slot.UNKNOWN_SIZE: len(unknown_prefix),
        }

    def _set_default(self, slot: list[int], field: Any) -> None:
        """Store the default of a field as it would be encoded on the wire, without a length."""
        value, kind = field.default_value, slot[Slot.KIND]
        if isinstance(value, str | bytes):
            encoded = value.encode() if isinstance(value, str) else value
        elif kind in (Kind.DOUBLE, Kind.FLOAT):
            encoded = struct.pack("<d" if kind == Kind.DOUBLE else "<f", value)
        elif kind in (Kind.FIXED32, Kind.FIXED64):
            encoded = value.to_bytes(4 if kind == Kind.FIXED32 else 8, "little", signed=value < 0)
        else:
            if kind in (Kind.SINT32, Kind.SINT64):
                value = (value << 1) ^ (value >> 63)  # zigzag
            encoded = uvarint(value & (2**64 - 1))
        slot[Slot.DEFAULT] = self._plan.add_text(encoded)
        slot[Slot.DEFAULT_SIZE] = len(encoded)

    def _oneof_table(self, field: Any, fields: list[Any]) -> int:
        """Return `Slot.ONEOF` of a field: -1 if it is alone or in no oneof, else the start of the oneof's table."""
        oneof = field.containing_oneof
        if oneof is None or len(oneof.fields) < 2:
            return -1
        if oneof.full_name not in self._oneof_tables:
            numbers = {member.number for member in oneof.fields}
            indexes = [i for i, candidate in enumerate(fields) if candidate.number in numbers]
            self._oneof_tables[oneof.full_name] = self._plan.add_table([len(indexes), *indexes])
        return self._oneof_tables[oneof.full_name]


def _value_type(spark_type: pa.DataType | None, name: str) -> pa.DataType | None:
    """Return the type of one value of a struct's field: an element of its list, an entry of its map."""
    i = -1 if spark_type is None else spark_type.get_field_index(name)
    if spark_type is None or i < 0:
        return None
    type_ = spark_type.field(i).type
    if pa.types.is_map(type_):
        return pa.struct([("key", type_.key_type), ("value", type_.item_type)])
    return type_.value_type if pa.types.is_list(type_) else type_
