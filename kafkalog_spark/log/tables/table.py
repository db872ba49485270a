"""What a table is: named columns with a type and a meaning, and what one piece of work of it reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from kafkalog_spark.errors import OptionError

TIMESTAMP = pa.timestamp("us", tz="UTC")
"""As in `records`. What lies outside of what it can hold (year 294,247 and more) is null."""
TEXT, BOOL, INT, LONG, DOUBLE = pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.float64()


class Unit(Enum):
    """What one piece of work reads, and what the range options are held against."""

    SEGMENT = "segment"
    PARTITION = "partition"
    OFFSETS_TOPIC = "partition of __consumer_offsets"
    TRANSACTION_TOPIC = "partition of __transaction_state"


@dataclass(frozen=True, slots=True)
class Column:
    """asked: read only where a query names it, because it costs more than the others."""

    name: str
    type: pa.DataType
    meaning: str
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table. has_ranges: whether the options for starts and ends narrow it; has_history: whether `history` does."""

    name: str
    meaning: str
    unit: Unit
    columns: tuple[Column, ...]
    has_ranges: bool = False
    has_history: bool = False

    @property
    def of_topics(self) -> bool:
        """Whether a subscription chooses what it is about."""
        return self.unit in (Unit.SEGMENT, Unit.PARTITION)

    @property
    def default_columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if not column.asked)

    def schema(self, columns: tuple[str, ...]) -> pa.Schema:
        """The Arrow schema of these columns, in this order. Raises OptionError for a name that is not a column."""
        by_name = {column.name: column for column in self.columns}
        for name in columns:
            if name not in by_name:
                raise OptionError(
                    f"the table '{self.name}' has no column '{name}'", hint=f"its columns are {', '.join(by_name)}"
                )
        return pa.schema([pa.field(name, by_name[name].type) for name in columns])


def columns_page(tables: Iterable[Table]) -> str:
    """Tables and their columns as Markdown, for docs/tables.md."""
    lines: list[str] = []
    for table in tables:
        lines += [f"### {table.name}", "", table.meaning, "", "| column | type | meaning |", "|---|---|---|"]
        for column in table.columns:
            asked = " Read only where `columns` or a schema names it." if column.asked else ""
            lines.append(f"| `{column.name}` | {_type_text(column.type)} | {column.meaning}{asked} |")
        lines.append("")
    return "\n".join(lines)


def _type_text(kind: pa.DataType) -> str:
    """As Spark writes it."""
    if pa.types.is_list(kind):
        return f"array<{_type_text(kind.value_type)}>"
    if pa.types.is_struct(kind):
        fields = (kind.field(i) for i in range(kind.num_fields))
        return f"struct<{', '.join(f'{field.name}: {_type_text(field.type)}' for field in fields)}>"
    names = {TEXT: "string", BOOL: "boolean", INT: "int", LONG: "bigint", DOUBLE: "double", TIMESTAMP: "timestamp"}
    return names[kind]
