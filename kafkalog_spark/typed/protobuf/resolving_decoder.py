"""Decoder of Protobuf values with one or several writer descriptors into the projected columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from kafkalog_spark.typed.columns.binary_values import Values
from kafkalog_spark.typed.columns.projection_check import check_projection
from kafkalog_spark.typed.columns.resolving_decoder import NO_ENTRY, NO_POSITION, DecodeFaults, ResolvingDecoder
from kafkalog_spark.typed.protobuf import arrow_types
from kafkalog_spark.typed.protobuf.kernel import LEVELS, Level, Workspace, decode_protobuf
from kafkalog_spark.typed.protobuf.message_merging import Malformed, merge_submessages
from kafkalog_spark.typed.protobuf.plan import MAX_ENUM_NAME, MessageCell, Plan, ProtobufFault
from kafkalog_spark.typed.protobuf.plan_compiler import MAX_SLOTS, PlanCompiler
from kafkalog_spark.typed.protobuf.read_options import ProtobufReadOptions
from kafkalog_spark.typed.protobuf.scan_kernel import Seen


class ProtobufResolvingDecoder(ResolvingDecoder):
    """Decoder of the projected columns of a Protobuf message."""

    fault_codes, max_rows = ProtobufFault, MAX_SLOTS // 2

    def __init__(self, reader: Any, projection: pa.Schema, read_options: ProtobufReadOptions) -> None:
        """Create a decoder without writer descriptors.

        Args:
            reader: Descriptor of the message that values are read as.
            projection: Columns to decode.
            read_options: Options that choose the types of columns.

        Raises:
            OptionError: If a projected column does not exist in the message or has another type there.
        """
        self._read_options = read_options
        super().__init__(projection, arrow_types.columns_of(reader, read_options))

    def _new_program(self) -> Plan:
        self._descriptors: dict[int, Any] = {}
        return Plan()

    def _compile(self, writer: Any) -> int:
        """Compile a descriptor. Raises OptionError also if it has a projected column with another type."""
        available = pa.struct(list(arrow_types.columns_of(writer, self._read_options)))
        names = {field.name for field in available}
        check_projection(pa.struct([field for field in self.schema if field.name in names]), available, "")
        entry = PlanCompiler(self._program, self._read_options).compile_message(writer, self._tree, available)
        self._descriptors[entry] = writer
        return entry

    def _kernel(self) -> tuple[Callable[..., int], Workspace]:
        max_slots = max(1, int(self._arrays.messages[:, MessageCell.SLOT_COUNT].max(initial=0)))
        workspace = Workspace(
            np.empty((LEVELS * max_slots, len(Seen)), np.int64),
            np.empty((LEVELS, len(Level)), np.int64),
            np.empty(MAX_ENUM_NAME, np.uint8),
        )
        return decode_protobuf, workspace

    def _decode_columns(self, values: Values, entries: np.ndarray) -> tuple[pa.Array, DecodeFaults]:
        """Decode all values. If some have the fault NEEDS_MERGE, rewrite those and decode all values once more."""
        columns, faults = super()._decode_columns(values, entries)
        rows = np.flatnonzero(faults.codes == ProtobufFault.NEEDS_MERGE)
        if not len(rows):
            return columns, faults
        data, starts, ends = values.data, values.starts.copy(), values.ends.copy()
        chunks, size, entries = [data], len(data), entries.copy()
        refused: dict[int, ProtobufFault] = {}
        for row in rows.tolist():
            try:
                rewritten = merge_submessages(
                    data[starts[row] : ends[row]].tobytes(), self._descriptors[int(entries[row])]
                )
            except Malformed as error:
                refused[row], entries[row] = error.fault, NO_ENTRY
                continue
            starts[row], ends[row] = size, size + len(rewritten)
            size += len(rewritten)
            chunks.append(np.frombuffer(rewritten, np.uint8))
        columns, faults = super()._decode_columns(Values(np.concatenate(chunks), starts, ends), entries)
        for row, fault in refused.items():
            faults.codes[row], faults.positions[row] = fault, NO_POSITION
        return columns, faults
