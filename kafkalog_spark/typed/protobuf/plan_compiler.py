"""Compiles a message descriptor and a projection into the plan that the Protobuf kernel runs (`plan.py`).

The plan has a row of `messages` for each message, and a slot for each field. The slot of a message field refers to the
row of that message. `plan.py` defines the cells of both.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.varints import uvarint
from kafkalog_spark.typed.columns.projection import NOT_PROJECTED, ColumnTree
from kafkalog_spark.typed.protobuf import arrow_types, field_types
from kafkalog_spark.typed.protobuf.plan import MAX_ENUM_NAME, NO_ONEOF, Absent, Kind, MessageCell, Plan, SlotCell
from kafkalog_spark.typed.protobuf.read_options import ProtobufReadOptions

MAX_SLOTS = 100_000
"""Maximum number of slots of one root message and the messages in it."""

_MAX_NUMBER_DIGITS = 12  # room for an int32 with its sign
_MISSING_FIELD_NUMBERS_FROM = 1 << 40
"""Field numbers from here on stand for projected columns whose field the descriptor lacks, in the order of the columns.
No message on the wire can contain them, so these fields are always absent."""


class PlanCompiler:
    """Compiles one root message. A message that is not projected is compiled once, however often it occurs.

    Methods get a descriptor, and two facts that do not depend on each other:
        column: The projected column. None if the query does not read it; values are then validated and not stored.
        spark_type: The type in the schema. None if the schema lacks it; Spark then skips values, so that fewer rules
            apply to them.
    """

    def __init__(self, plan: Plan, read_options: ProtobufReadOptions) -> None:
        self._plan, self._read_options = plan, read_options
        self._root_name: str | None = None
        self._unprojected_rows: dict[tuple[str, pa.DataType | None], int] = {}
        """Row number of each message that is not projected, by full name and Spark type."""
        self._oneof_tables: dict[str, int] = {}
        """Start of each oneof's table (`SlotCell.ONEOF`), by full name."""
        self._enum_cells: dict[str, dict[SlotCell, int]] = {}
        """Cells that the slots of all fields of an enum have in common, by the enum's full name."""

    def compile_message(self, descriptor: Any, column: ColumnTree | None, spark_type: pa.DataType | None) -> int:
        """Compile a message and the messages in it; return its row number in the plan's messages.

        Args:
            descriptor: Descriptor of the message.
            column: Its projected column, or None.
            spark_type: The struct that Spark reads it as, or None.

        Raises:
            OptionError: If the plan becomes too large.
        """
        self._root_name = self._root_name or descriptor.full_name
        key = (descriptor.full_name, spark_type)
        if column is None and key in self._unprojected_rows:
            return self._unprojected_rows[key]
        # The row is added before the fields are compiled, because a field may contain this message again.
        row_number = len(self._plan.messages)
        message_row = [0] * len(MessageCell)
        message_row[MessageCell.COLUMN] = NOT_PROJECTED if column is None else column.number
        self._plan.messages.append(message_row)
        if column is None:
            self._unprojected_rows[key] = row_number
        fields = sorted(descriptor.fields, key=lambda field: field.number)
        slots = [self._compile_field(field, fields, column, spark_type) for field in fields]
        if column is not None:
            slots += self._compile_missing_fields(column, {field.name for field in fields})
        slots_of_root = len(self._plan.slots) - self._plan.begin + len(slots)
        if slots_of_root > MAX_SLOTS:
            raise OptionError(
                f"the message {self._root_name} has more than {MAX_SLOTS:,} fields, including those of nested messages"
            )
        message_row[MessageCell.FIRST_SLOT], message_row[MessageCell.SLOT_COUNT] = len(self._plan.slots), len(slots)
        self._plan.slots += slots
        return row_number

    def _compile_missing_fields(self, column: ColumnTree, names: set[str]) -> list[list[int]]:
        """Return a slot for each column whose field the descriptor lacks; it fills the column with nulls.

        Args:
            column: Column of the message.
            names: Names of the fields in the descriptor.
        """
        slots = []
        for index, field in enumerate(column.type):
            if field.name not in names:
                slot = [0] * len(SlotCell)
                slot[SlotCell.NUMBER] = _MISSING_FIELD_NUMBERS_FROM + index
                slot[SlotCell.KIND] = Kind.INT32  # any kind, because no value is ever decoded
                slot[SlotCell.COLUMN] = column.children[index].number
                slot[SlotCell.ONEOF] = NO_ONEOF
                slot[SlotCell.ABSENT] = Absent.NULL
                self._fill_null_columns(slot, column.children[index])
                slots.append(slot)
        return slots

    def _compile_field(
        self, field: Any, fields: list[Any], message_column: ColumnTree | None, message_type: pa.DataType | None
    ) -> list[int]:
        """Compile a field and the messages in it; return its slot.

        Args:
            field: Descriptor of the field.
            fields: All fields of its message, sorted by number.
            message_column: Projected column of the message, or None.
            message_type: The struct that Spark reads the message as, or None.
        """
        # A value is one element of a repeated field (for a map: an entry), or the only value of another field.
        column = None if message_column is None else message_column.field(field.name)
        is_repeated = field_types.is_repeated(field)
        value_column = column.children[0] if is_repeated and column is not None else column
        slot = [0] * len(SlotCell)
        slot[SlotCell.NUMBER] = field.number
        slot[SlotCell.COLUMN] = NOT_PROJECTED if column is None else column.number
        slot[SlotCell.ELEMENT] = NOT_PROJECTED if value_column is None else value_column.number
        slot[SlotCell.IS_REPEATED] = int(is_repeated)
        slot[SlotCell.IS_REQUIRED] = int(field_types.is_required(field))
        slot[SlotCell.ONEOF] = self._add_oneof(field, fields)
        if not is_repeated and column is not None:
            self._fill_null_columns(slot, column)
        if field.type == field_types.FieldType.MESSAGE:
            self._fill_message_slot(slot, field, value_column, _value_type(message_type, field.name))
        else:
            self._fill_scalar_slot(slot, field, value_column)
        return slot

    def _fill_null_columns(self, slot: list[int], column: ColumnTree) -> None:
        """Set the columns that get a null if the field is null: `column` and, for a struct, those of its fields."""
        null_columns = column.null_columns()
        slot[SlotCell.NULL_COLUMNS] = self._plan.add_table(null_columns)
        slot[SlotCell.NULL_COLUMNS_END] = slot[SlotCell.NULL_COLUMNS] + len(null_columns)

    def _fill_message_slot(
        self, slot: list[int], field: Any, value_column: ColumnTree | None, value_type: pa.DataType | None
    ) -> None:
        """Set the cells that only slots of message fields have, and compile the message."""
        slot[SlotCell.ABSENT] = Absent.DEFAULT if _is_in_map_entry(field) else Absent.NULL
        if field_types.is_time(field.message_type, "Timestamp", "Duration"):
            slot[SlotCell.KIND] = Kind.TIMESTAMP
            # Spark converts only the times that are in the schema.
            slot[SlotCell.MUST_FIT] = int(value_type is not None)
        else:
            slot[SlotCell.KIND] = Kind.MESSAGE
            slot[SlotCell.MESSAGE] = self.compile_message(field.message_type, value_column, value_type)

    def _fill_scalar_slot(self, slot: list[int], field: Any, value_column: ColumnTree | None) -> None:
        """Set the cells that depend on the type, the presence and the default of a field that is not a message."""
        slot[SlotCell.KIND] = int(arrow_types.scalar(field, self._read_options).kind)
        in_map_entry = _is_in_map_entry(field)
        is_repeated = field_types.is_repeated(field)
        is_implicit = not is_repeated and not field.has_presence
        slot[SlotCell.HAS_NO_PRESENCE] = int(is_implicit and not in_map_entry)
        # As in Spark, an absent field without presence is null unless emit.default.values is set. The key and the value
        # of a map's entry are never null.
        has_default = (
            in_map_entry
            or (not is_repeated and field.has_default_value)
            or (is_implicit and self._read_options.emit_defaults)
        )
        slot[SlotCell.ABSENT] = Absent.DEFAULT if has_default else Absent.NULL
        if field.type == field_types.FieldType.ENUM:
            name = field.enum_type.full_name
            if name not in self._enum_cells:
                self._enum_cells[name] = self._add_enum(field.enum_type)
            for cell, content in self._enum_cells[name].items():
                slot[cell] = content
        elif field.type == field_types.FieldType.STRING:
            must_be_utf8 = field_types.checks_utf8(field)
            slot[SlotCell.MUST_BE_UTF8] = int(must_be_utf8)
            if not must_be_utf8 and value_column is not None:
                self._plan.java_texts.add(value_column.number)
        if not is_repeated:
            self._fill_default(slot, field)

    def _add_enum(self, enum: Any) -> dict[SlotCell, int]:
        """Add the symbols of an enum to the plan; return the cells that the slots of its fields have in common."""
        names: dict[int, str] = {}
        for value in enum.values:
            names.setdefault(value.number, value.name)  # the first of several names of a number, as in Java
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
            SlotCell.SYMBOL_TABLE: self._plan.add_table(table),
            SlotCell.SYMBOL_COUNT: len(names),
            SlotCell.IS_CLOSED: int(enum.is_closed),
            SlotCell.UNKNOWN_PREFIX: self._plan.add_text(unknown_prefix),
            SlotCell.UNKNOWN_PREFIX_SIZE: len(unknown_prefix),
        }

    def _fill_default(self, slot: list[int], field: Any) -> None:
        """Set the default of a field to the bytes that would encode it on the wire, without a length."""
        value, kind = field.default_value, slot[SlotCell.KIND]
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
        slot[SlotCell.DEFAULT] = self._plan.add_text(encoded)
        slot[SlotCell.DEFAULT_SIZE] = len(encoded)

    def _add_oneof(self, field: Any, fields: list[Any]) -> int:
        """Add the table of a field's oneof to the plan, once; return its start, or NO_ONEOF.

        Args:
            field: Descriptor of the field.
            fields: All fields of its message, sorted by number.
        """
        oneof = field.containing_oneof
        if oneof is None or len(oneof.fields) < 2:
            return NO_ONEOF
        if oneof.full_name not in self._oneof_tables:
            numbers = {member.number for member in oneof.fields}
            indexes = [i for i, candidate in enumerate(fields) if candidate.number in numbers]
            self._oneof_tables[oneof.full_name] = self._plan.add_table([len(indexes), *indexes])
        return self._oneof_tables[oneof.full_name]


def _is_in_map_entry(field: Any) -> bool:
    """Return True for the key and the value of a map."""
    return bool(field.containing_type.GetOptions().map_entry)


def _value_type(message_type: pa.DataType | None, name: str) -> pa.DataType | None:
    """Return the Spark type of one value of a field: an element of a list, an entry of a map, or the field itself.

    None if the struct `message_type` has no such field, or is None.
    """
    index = -1 if message_type is None else message_type.get_field_index(name)
    if message_type is None or index < 0:
        return None
    field_type = message_type.field(index).type
    if pa.types.is_map(field_type):
        return pa.struct([("key", field_type.key_type), ("value", field_type.item_type)])
    return field_type.value_type if pa.types.is_list(field_type) else field_type
