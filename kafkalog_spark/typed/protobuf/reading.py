"""Protobuf messages of one or several descriptors, decoded into the columns of the projection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.typed.columns.binary_values import Values
from kafkalog_spark.typed.columns.projection_check import check_projection
from kafkalog_spark.typed.columns.reading import NO_ENTRY, NO_POSITION, DecodeFaults, SchemaReading
from kafkalog_spark.typed.protobuf import types
from kafkalog_spark.typed.protobuf.kernel import LEVELS, Level, Workspace, decode_protobuf
from kafkalog_spark.typed.protobuf.message_merging import Malformed, merged
from kafkalog_spark.typed.protobuf.plan import LONGEST_NAME, Message, Plan, ProtobufFault
from kafkalog_spark.typed.protobuf.plan_compiler import _MOST_SLOTS, _PlanMaker
from kafkalog_spark.typed.protobuf.scan_kernel import Seen


class ProtobufReading(SchemaReading):
    """The columns projected of some messages; knows the descriptors that it was shown (`entry_of`)."""

    faults, max_rows = ProtobufFault, _MOST_SLOTS // 2

    def __init__(self, reader: Any, projection: pa.Schema, read_options: types.ProtobufReadOptions) -> None:
        """Raises OptionError for a projected column that the descriptor does not have, or has with another type."""
        self._read_options = read_options
        super().__init__(projection, types.columns_of(reader, read_options))

    def new_program(self) -> Plan:
        self._descriptors: dict[int, Any] = {}
        return Plan()

    def add(self, writer: Any) -> int:
        """Raises OptionError also for a projected column that is of another type there."""
        has = pa.struct(list(types.columns_of(writer, self._read_options)))
        names = {field.name for field in has}
        check_projection(pa.struct([field for field in self.schema if field.name in names]), has, "")
        entry = _PlanMaker(self._program, self._read_options).message(writer, self._tree, has)
        self._descriptors[entry] = writer
        return entry

    def kernel(self) -> tuple[Callable[..., int], Workspace]:
        widest = max(1, int(self._arrays.messages[:, Message.SLOTS].max(initial=0)))
        space = Workspace(
            np.empty((LEVELS * widest, len(Seen)), np.int64),
            np.empty((LEVELS, len(Level)), np.int64),
            np.empty(LONGEST_NAME, np.uint8),
        )
        return decode_protobuf, space

    def run(self, values: Values, entries: np.ndarray) -> tuple[pa.Array, DecodeFaults]:
        """As SchemaReading.run; then, rarely, once more with values written anew that the kernel does not read."""
        columns, faults = super().run(values, entries)
        rows = np.flatnonzero(faults.codes == ProtobufFault.JOIN)
        if not len(rows):
            return columns, faults
        data, starts, ends = values.data, values.starts.copy(), values.ends.copy()
        new, at, entries = [data], len(data), entries.copy()
        refused: dict[int, ProtobufFault] = {}
        for row in rows.tolist():
            try:
                whole = merged(data[starts[row] : ends[row]].tobytes(), self._descriptors[int(entries[row])])
            except Malformed as error:
                refused[row], entries[row] = error.fault, NO_ENTRY
                continue
            starts[row], ends[row] = at, at + len(whole)
            at += len(whole)
            new.append(np.frombuffer(whole, np.uint8))
        columns, faults = super().run(Values(np.concatenate(new), starts, ends), entries)
        for row, fault in refused.items():
            faults.codes[row], faults.positions[row] = fault, NO_POSITION
        return columns, faults
