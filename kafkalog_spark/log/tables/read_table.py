"""Reads a table: yields the rows of its units, in a Spark task or for `LogDirs.table`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module

import pyarrow as pa

from kafkalog_spark.errors import DataLoss, KafkalogError, NotALogDirectory
from kafkalog_spark.log.tables.open_unit import Batches, OpenUnit, TaskState
from kafkalog_spark.log.tables.table import Table, TableContext, TableQuery, TableUnit

_log = logging.getLogger(__name__)


def rows_of_units(units: Iterable[TableUnit], query: TableQuery, context: TableContext) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the units, in their order.

    Raises:
        NotALogDirectory: If a file cannot be read.
        DataLoss: If a file was deleted since the units were planned, unless fail_on_data_loss is False.
    """
    rows_of, task = row_function(query.table), TaskState(query, context)
    for unit in units:
        if unit.location is None:
            yield from rows_of(OpenUnit(unit, task))
            continue
        try:
            yield from rows_of(OpenUnit(unit, task))
        except NotALogDirectory as gone:
            if unit.location.exists():
                raise
            _report_loss(gone, query)
        except FileNotFoundError as gone:
            what = "its files went away while they were read" if unit.segment is None else "the segment has gone"
            name, path = f"{unit.location.topic}-{unit.location.partition}", gone.filename or unit.location.directory
            loss = DataLoss(f"{what}: {gone.strerror}", topic_partition=name, path=path, offset=unit.segment)
            _report_loss(loss, query)


def row_function(table: Table) -> Callable[[OpenUnit], Batches]:
    """Import the function that returns the rows of a unit."""
    module, name = table.rows.rsplit(".", 1)
    function: Callable[[OpenUnit], Batches] = getattr(import_module(f"{__package__}.{module}"), name)
    return function


def _report_loss(error: KafkalogError, query: TableQuery) -> None:
    """Raise or log the error for a file that was deleted."""
    if query.fail_on_data_loss:
        raise error.at(hint="failOnDataLoss=false reads what is left")
    _log.warning("%s", error)
