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
from kafkalog_spark.typed.protobuf import arrow_types, field_types
from kafkalog_spark.typed.protobuf.plan import MAX_ENUM_NAME, Absent, Kind, Message, Plan, Slot
from kafkalog_spark.typed.protobuf.read_options import ProtobufReadOptions

MAX_SLOTS = 100_000
"""Maximum number of slots of one root message and the messages in it."""

_MAX_NUMBER_DIGITS = 12  # room for an int32 with its sign
_MISSING_FIELD_NUMBERS_FROM = 1 << 40
"""Field numbers from here on stand for projected columns without a field in the descriptor, in the order of columns.
No message on the wire can contain them."""


class PlanCompiler:
    """Compiles one root message. A message that is not projected is compiled once, however often it occurs.

    Methods describe a message or field by its descriptor and two facts that are independent of each other:
        column: None if the query does not read it. Its values are validated and not stored.
        spark_type: None if the schema has no column for it. Spark then skips it, so fewer rules apply to its values.
    """

    def __init__(self, plan: Plan, read_options: ProtobufReadOptions) -> None:
        self._plan, self._read_options = plan, read_options
        self._root_name: str | None = None
        self._unprojected_rows: dict[tuple[str, pa.DataType | None], int] = {}
        """Row of each message that is not projected, by full name and Spark type."""
        self._oneof_tables: dict[str, int] = {}
        """`Slot.ONEOF` of each oneof, by full name."""
        self._enum_columns: dict[str, dict[Slot, int]] = {}
        """Columns of a slot that all fields of an enum share, by the enum's full name."""

    def compile_message(self, descriptor: Any, column: ColumnTree | None, spark_type: pa.DataType | None) -> int:
        """Compile a message and the messages in it; return its row in the plan's messages.

        Args:
            descriptor: Descriptor of the message.
            column: Its column, or None.
            spark_type: The struct that Spark reads it as, or None.

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
        slots = [self._field_slot(field, fields, column, spark_type) for field in fields]
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
        for index, field in enumerate(column.type):
            if field.name not in names:
                slot = [0] * len(Slot)
                slot[Slot.NUMBER] = _MISSING_FIELD_NUMBERS_FROM + index
                slot[Slot.KIND] = Kind.INT32  # any kind, because no value is ever decoded
                slot[Slot.COLUMN] = column.children[index].number
                slot[Slot.ONEOF] = -1
                self._set_null_columns(slot, column.children[index])
                slots.append(slot)
        return slots

    def _field_slot(
        self, field: Any, fields: list[Any], message_column: ColumnTree | None, message_type: pa.DataType | None
    ) -> list[int]:
        """Return the slot of a field.

        Args:
            field: Descriptor of the field.
            fields: All fields of its message, sorted by number.
            message_column: Column of the message, or None.
            message_type: The struct that Spark reads the message as, or None.
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
        if field.type == field_types.FieldType.MESSAGE:
            self._set_message(slot, field, value_column, _value_type(message_type, field.name))
        else:
            self._set_scalar(slot, field, value_column)
        return slot

    def _set_null_columns(self, slot: list[int], column: ColumnTree) -> None:
        null_columns = column.null_columns()
        slot[Slot.NULLS] = self._plan.add_table(null_columns)
        slot[Slot.NULLS_END] = slot[Slot.NULLS] + len(null_columns)

    def _set_message(
        self, slot: list[int], field: Any, value_column: ColumnTree | None, value_type: pa.DataType | None
    ) -> None:
        """Set the columns of a slot that depend on the type of a message field, and compile that message."""
        slot[Slot.ABSENT] = Absent.DEFAULT if _is_in_map_entry(field) else Absent.NULL
        if field_types.is_time(field.message_type, "Timestamp", "Duration"):
            slot[Slot.KIND] = Kind.TIMESTAMP
            slot[Slot.CHECKED] = int(value_type is not None)  # must fit 64 bits if Spark reads it
        else:
            slot[Slot.KIND] = Kind.MESSAGE
            slot[Slot.MESSAGE] = self.compile_message(field.message_type, value_column, value_type)

    def _set_scalar(self, slot: list[int], field: Any, value_column: ColumnTree | None) -> None:
        """Set the columns of a slot that depend on the type and the presence of a field that is no message."""
        slot[Slot.KIND] = int(arrow_types.scalar(field, self._read_options).kind)
        in_map_entry = _is_in_map_entry(field)
        is_repeated = field_types.is_repeated(field)
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
            if name not in self._enum_columns:
                self._enum_columns[name] = self._add_enum(field.enum_type)
            for column_of_slot, value in self._enum_columns[name].items():
                slot[column_of_slot] = value
        elif field.type == field_types.FieldType.STRING:
            slot[Slot.CHECKED] = int(field_types.checks_utf8(field))
            if not slot[Slot.CHECKED] and value_column is not None:
                self._plan.java_texts.add(value_column.number)
        if not is_repeated:
            self._set_default(slot, field)

    def _add_enum(self, enum: Any) -> dict[Slot, int]:
        """Add the symbols of an enum to the plan; return the columns that the slots of its fields share."""
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
            Slot.CHECKED: int(enum.is_closed),  # an unknown number is then an unknown field
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
