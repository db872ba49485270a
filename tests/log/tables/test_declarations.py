"""What a table declares is all that reading it needs: a function for its rows, and needs that it may use."""

from __future__ import annotations

import pytest

from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.tables.context import context_of, needed_partitions
from kafkalog_spark.log.tables.declarations import TABLES, table_query
from kafkalog_spark.log.tables.open_unit import OpenUnit, TaskState
from kafkalog_spark.log.tables.read_table import row_function, rows_of_units
from kafkalog_spark.log.tables.table import Need, TableContext
from kafkalog_spark.log.tables.units import units_of
from tests.golden_data import data_dir


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_row_function_of_every_table_exists(table) -> None:
    assert callable(row_function(table))


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_columns_that_depend_on_a_need_are_columns_of_the_table(table) -> None:
    for columns in table.needs.values():
        assert set(columns) <= table.columns.keys()


@pytest.mark.parametrize(
    "name", [name for name, table in TABLES.items() if Need.COORDINATORS in table.needs or Need.LOG_ENDS in table.needs]
)
def test_rows_that_use_an_undeclared_need_are_an_error_and_not_null(name: str) -> None:
    dirs = LogDirs.open(data_dir())
    query = table_query(name)
    units = units_of(query, dirs.locations)
    with pytest.raises(LookupError, match=f"the table '{name}' does not declare Need"):
        list(rows_of_units(units, query, TableContext()))


def test_log_directories_without_the_declared_need_are_an_error() -> None:
    query = table_query("segments")
    [unit, *_] = units_of(query, LogDirs.open(data_dir()).locations)
    with pytest.raises(LookupError, match=r"the table 'segments' does not declare Need\.LOG_DIRS"):
        _ = OpenUnit(unit, TaskState(query, TableContext())).roots


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_only_partitions_that_the_columns_need_are_located(table) -> None:
    dirs = LogDirs.open(data_dir())
    for column in table.columns:
        query = table_query(table.name, [column])
        needed = needed_partitions(query, dirs.locations)
        dependent = {need for need, columns in table.needs.items() if not columns or column in columns}
        assert needed == (
            list(dirs.locations) if dependent - {Need.COORDINATORS}
            else [("__transaction_state", 0)] if dependent
            else []
        )  # fmt: skip
        context = context_of(query, {tp: dirs.locations[tp] for tp in needed}, dirs.roots)
        assert bool(context.coordinators) == (Need.COORDINATORS in dependent)
