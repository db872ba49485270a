"""The options of a load of another table than `records`: which there are, and which have a meaning for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.tables.columns import RECORDS, TABLES
from kafkalog_spark.log.tables.work import TableQuery
from kafkalog_spark.option_text import GivenOptions
from kafkalog_spark.source.option_names import END_OPTIONS, SEARCH_OPTIONS, START_OPTIONS
from kafkalog_spark.source.option_values import known_columns
from kafkalog_spark.source.subscription import NotSaid, Subscription

_OF_RECORDS = (
    "includeHeaders",
    "isolationLevel",
    "kafka.isolation.level",
    "mode",
    "tail",
    "maxRecordsPerPartition",
    *(option.name for option in SEARCH_OPTIONS),
)
"""They would change what is read, or how, and there are no records."""


def table_query(
    given: GivenOptions, plain: Mapping[str, Any], subscription: Subscription, *, streaming: bool
) -> TableQuery | None:
    """What options `table`, `history` and `columns` ask for; None for records.

    Raises OptionError for a stream, and for an option that the table gives no meaning.
    """
    name = plain["table"]
    if name == RECORDS:
        if plain["history"]:
            raise OptionError("option 'history' is of tables made of internal topics", hint=_tables_with_history())
        return None
    if streaming:
        raise OptionError(f"a stream reads records, not the table '{name}'", hint="use spark.read")
    table = TABLES[name]
    if plain["replicas"] == "merge":
        raise OptionError(f"replicas=merge is of records, not of the table '{name}', which is about single files")
    for option in _OF_RECORDS:
        if given.has(option):
            raise OptionError(f"option '{option}' is about records; the table '{name}' has none")
    if not table.has_ranges:
        for bound in (*START_OPTIONS, *END_OPTIONS):
            if bound in given:
                of = ", ".join(other.name for other in TABLES.values() if other.has_ranges)
                raise OptionError(f"option '{bound.name}' does not narrow the table '{name}'", hint=f"it narrows {of}")
    if plain["history"] and not table.has_history:
        raise OptionError(f"the table '{name}' has no history", hint=_tables_with_history())
    if not table.of_topics and subscription != NotSaid():
        raise OptionError(f"the table '{name}' is not of single topics", hint="leave the subscription out, and filter")
    columns = table.default_columns
    if plain["columns"] is not None:
        columns = known_columns(plain["columns"], [column.name for column in table.columns])
    return TableQuery(name, columns, plain["history"], plain["failOnDataLoss"], plain["maxDecompressedBatchBytes"])


def _tables_with_history() -> str:
    return f"these have one: {', '.join(table.name for table in TABLES.values() if table.has_history)}"
