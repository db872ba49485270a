"""The format `avro`: values in Avro's binary encoding, one schema for all, with the meaning of Spark's from_avro."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec, plain_text
from kafkalog_spark.typed import decoder as formats
from kafkalog_spark.typed.avro import types
from kafkalog_spark.typed.avro.program import FULL, AvroFault, Program, ProgramArrays
from kafkalog_spark.typed.avro.resolve import add_reading
from kafkalog_spark.typed.avro.schema import PRIMITIVES, AvroType, parse_schema
from kafkalog_spark.typed.columns.buffer_pool import BufferPool, Values
from kafkalog_spark.typed.columns.projection import check_projection, tree_of
from kafkalog_spark.typed.ddl import recursion_bounded, schema_text

OPTIONS = (OptionSpec("schema", plain_text), *types.OPTIONS)


def resolve(format: formats.ResolvedFormat, sources: formats.SchemaSources) -> formats.ResolvedFormat:
    """The format with the texts of schemas in the place of their files'."""
    options = dict(format.options)
    if "schema" in options and options["schema"].strip() not in PRIMITIVES:
        options["schema"] = schema_text("value.schema", options["schema"])
    return replace(format, options=options, reader_text=reader_text(format))


def schema(format: formats.ResolvedFormat) -> pa.Schema:
    """The columns of the reader schema, which is the writer's where there is no other."""
    _, reader, meaning = _schemas(format)
    return types.columns_of(reader, meaning)


def decoder(format: formats.ResolvedFormat, projection: pa.Schema) -> formats.ValueDecoder:
    """As in Spark, bytes after a value count for nothing. Raises OptionError."""
    writer, reader, _ = _schemas(format)
    return formats.SingleSchemaDecoder(reading(reader, projection, format.options), writer)


def reading(reader: AvroType, projection: pa.Schema, options: Mapping[str, str]) -> AvroReading:
    """Decoder of values as a reader schema. Raises OptionError."""
    return AvroReading(reader, projection, types.meaning_of(options))


def encoder(options: Mapping[str, str], given: pa.Schema) -> formats.ValueEncoder:
    """Raises OptionError. Without option `schema`, the one that Spark's to_avro makes of the columns."""
    from kafkalog_spark.typed.avro.encoder import AvroEncoder

    return AvroEncoder(options.get("schema"), given)


def reader_text(format: formats.ResolvedFormat) -> str | None:
    """The reader schema as it was looked up, or as the options say it. Raises OptionError."""
    options = format.options
    if format.reader_text is not None:
        return format.reader_text
    if "avroschema" in options:
        return schema_text("avroSchema", options["avroschema"])
    if "avroschemaurl" in options:
        return schema_text("avroSchemaUrl", options["avroschemaurl"])
    return None


def _schemas(format: formats.ResolvedFormat) -> tuple[AvroType, AvroType, types.AvroMeaning]:
    text = format.options.get("schema")
    if text is None:
        raise OptionError(
            "values in Avro say nothing of their schema, and neither does an option",
            hint="option value.schema is the schema they were written with, as JSON or as a file's path; values with a "
            "registry's prefix are of format confluent-avro",
        )
    if text.strip() not in PRIMITIVES:
        text = schema_text("value.schema", text)
    reader = reader_text(format)
    writer = _parsed(text)
    return writer, writer if reader is None else _parsed(reader), types.meaning_of(format.options)


@lru_cache(64)
def _parsed(text: str) -> AvroType:
    return parse_schema(text)


# Values of one or several writer schemas, decoded into the columns of the projection of one reader schema. The kernels
# are loaded with the first values: a query is planned without them.

NO_PROGRAM = -1
"""The entry of a value whose schema nobody knows."""


class AvroReading:
    """A reader schema with the columns projected of it; knows the writer schemas it was shown (`entry_of`)."""

    def __init__(self, reader: AvroType, projection: pa.Schema, meaning: types.AvroMeaning) -> None:
        """Raises OptionError for a projected column that the reader schema does not have, or has with another type."""
        self.schema = projection
        check_projection(pa.struct(list(projection)), pa.struct(list(types.columns_of(reader, meaning))), "")
        self._reader, self._meaning = reader, meaning
        self._tree = tree_of(pa.struct(list(projection)))
        self._pool = BufferPool()
        self.forget()

    def forget(self) -> None:
        """Begin without a writer schema."""
        self._program = Program()
        under = self._tree.under()
        start = self._program.table(under)
        self._root = (start, start + len(under))
        self._arrays: ProgramArrays | None = None

    @property
    def is_full(self) -> bool:
        """True if memory has no room for another schema."""
        return len(self._program.rows) > FULL

    def entry_of(self, writer: AvroType) -> int:
        """Where the program for values of that schema begins. Raises OptionError when it would be too long."""
        self._arrays = None
        mark = self._program.mark()
        try:
            with recursion_bounded("an Avro schema"):
                return add_reading(self._program, writer, self._reader, self._tree, self._meaning)
        except OptionError:
            self._program.back_to(mark)
            raise

    def decode(
        self, values: Values, entries: np.ndarray, unknown: Callable[[int], str | None] = lambda i: None
    ) -> formats.Decoded:
        """entries int64[n]: what `entry_of` gave for each value's schema, or NO_PROGRAM; unknown: why value i has
        none."""
        from kafkalog_spark.typed.avro.kernel import STACK, AvroFaults, Loop, decode_avro
        from kafkalog_spark.typed.columns.buffers import ColumnBuffers

        n = len(values.starts)
        if self._arrays is None:
            self._arrays = self._program.arrays()
        sizes = int(np.maximum(values.ends - values.starts, 0).sum())
        buffers = ColumnBuffers(self._tree, n, sizes, self._pool)
        faults = AvroFaults(np.zeros(n, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64))
        if (without := entries < 0).any():
            faults.codes[without & (values.ends >= 0)] = AvroFault.NO_PROGRAM
        stack, at = np.empty((STACK, len(Loop)), np.int64), 0
        while at < n:
            at = decode_avro(
                values, entries, at, self._arrays, self._root, buffers.table, buffers.marks, stack, faults,
                buffers.missing,
            )  # fmt: skip
            if at < n and not buffers.grow():
                entries = entries.copy()
                entries[at], faults.codes[at] = NO_PROGRAM, AvroFault.SIZE
        paths = self._program.paths

        def why(i: int) -> str:
            if (reason := unknown(i)) is not None:
                return reason
            path = paths[int(faults.steps[i])].removeprefix(f"{types.VALUE}.")
            return f"{path} at byte {int(faults.places[i])} of the value: {AvroFault(int(faults.codes[i])).text}"

        bad = faults.codes != AvroFault.NONE
        return formats.Decoded(buffers.finish(self._program.java_texts), bad if bad.any() else None, why)
