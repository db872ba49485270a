"""python -m kafkalog_spark.warm: compile the kernels into their cache, so that no query waits for it.

Numba keeps compiled kernels next to their source (or in NUMBA_CACHE_DIR), by version, processor and argument types.
Compiling takes some 10 s in all; loading what is there 0.1 s.
"""

from __future__ import annotations

import time

import numpy as np

from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import H
from kafkalog_spark.kernels.choose import first_out_of_order
from kafkalog_spark.kernels.decode_legacy import decode_legacy, inspect_message_set
from kafkalog_spark.kernels.decode_v2 import decode_v2
from kafkalog_spark.kernels.primitives import CRC32_TABLE, CRC32C_TABLE
from kafkalog_spark.kernels.rows import rows_from_headers
from kafkalog_spark.kernels.search import search_legacy, search_v2
from kafkalog_spark.kernels.sweep import end_of_records, sweep
from kafkalog_spark.log.decode.record_schema import RecordPredicate, ScanRequest
from kafkalog_spark.log.decode.row_buffers import RowBuffers
from kafkalog_spark.log.decode.run_decoder import Chosen, RecordSearch
from kafkalog_spark.log.decode.scratch import Scratch


def warm() -> None:
    """Call every kernel once with nothing to do, with the argument types that reading uses."""
    payload = Scratch(64).read_only()
    nothing = np.empty(0, np.int64)
    units = np.empty((0, 6), np.int64)
    request = ScanRequest(columns=("offset",), max_decompressed=0)
    rows = RowBuffers("t", 0, request)
    table = np.empty((0, len(H)), np.int64)
    first_out_of_order(table, -1, 0, layout.MAX_INT64)
    Chosen.of(table, np.empty(0, np.uint8), rows, request)
    sweep(payload, 0, 0, np.empty((1, len(H)), np.int64), CRC32C_TABLE, CRC32_TABLE)
    end_of_records(payload, 0, 0, 0)
    inspect_message_set(payload, 0, 0, 1, CRC32_TABLE)
    for kernel in (decode_v2, decode_legacy, rows_from_headers):
        rows.begin()
        kernel(
            payload, nothing, nothing, units, rows.cursor, rows.limits, rows.offsets_in, rows.timestamps_in, rows.rows
        )
    for search in (search_v2, search_legacy):
        none = RecordSearch.of(RecordPredicate())
        search(payload, nothing, nothing, units, np.empty(0, np.int64), np.empty(0, np.uint8), none.patterns)
    _warm_encoder()
    _warm_formats()


def _warm_formats() -> None:
    import pyarrow as pa

    from kafkalog_spark.typed.decoder import ResolvedFormat, encoder_of

    row = pa.array([{"a": 1.5}])
    encoder_of("avro", {}, pa.schema(list(row.type))).encode(row)  # Protobuf is written by the same kernels
    ResolvedFormat("json", {}).decoder(pa.schema([("a", pa.string())])).decode(pa.array([b'{"a":"b"}']))
    one = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
    wanted = pa.schema([("a", pa.int32())])
    for values in (pa.array([b"\2"], pa.binary()), pa.array([None], pa.binary())):
        ResolvedFormat("avro", {"schema": one}).decoder(wanted).decode(values)
    try:
        from google.protobuf import descriptor_pb2
    except ImportError:  # an extra
        return
    from kafkalog_spark.typed.columns.buffer_pool import Values
    from kafkalog_spark.typed.protobuf.reading import ProtobufReading
    from kafkalog_spark.typed.protobuf.types import ProtobufMeaning

    message = descriptor_pb2.FileDescriptorProto.DESCRIPTOR.fields_by_name["options"].message_type.file
    uninterpreted = message.message_types_by_name["UninterpretedOption"]
    columns = pa.schema([("identifier_value", pa.string())])
    reading = ProtobufReading(uninterpreted, columns, ProtobufMeaning())
    entries = np.full(1, reading.entry_of(uninterpreted), np.int64)
    reading.decode(Values.of(pa.array([b""], pa.binary())), entries)


def _warm_encoder() -> None:
    import pyarrow as pa

    from kafkalog_spark.kernels.partition import choose_slots
    from kafkalog_spark.log.decode.record_schema import HEADERS_TYPE
    from kafkalog_spark.log.write.encoder_columns import key_column
    from kafkalog_spark.log.write.record_encoder import BatchParams, encode_runs

    records = pa.table(
        {
            "key": pa.array([b"k", None], pa.binary()),
            "value": pa.array([b"v", None], pa.binary()),
            "timestamp": pa.array([0, 1], pa.int64()),
            "headers": pa.array([[{"key": "h", "value": b"v"}], None], HEADERS_TYPE),
        }
    )
    for _ in encode_runs(records, 0, BatchParams(codec=layout.Codec.NONE)):
        pass
    nothing, no_bytes = np.empty(0, np.int32), np.empty(0, np.uint8)
    ones = np.ones(1, np.int64)
    choose_slots(0, key_column(records["key"].chunk(0)), nothing, no_bytes, 0, nothing, ones, ones, nothing)


def main() -> None:
    began = time.perf_counter()
    warm()
    print(f"kernels ready after {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
