"""Compilation of the kernels into their cache, so that no query has to wait for it.

    python -m kafkalog_spark.warm                    all kernels, about a minute of processor time
    python -m kafkalog_spark.warm --only read,json   the kernels that reading JSON needs

The cache has a kernel for each version, processor and argument types; see kernels/cache_directories.py. Other packages,
such as the broker, register their kernels by entry points of the group `kafkalog.kernels`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from functools import partial
from importlib.metadata import EntryPoint, entry_points

import numpy as np
import pyarrow as pa

from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.log.codecs.scratch import Scratch
from kafkalog_spark.log.decode.scan_request import RecordPredicate, ScanRequest
from kafkalog_spark.typed.formats import ResolvedFormat

PROCESSES = 2
"""Number of compiling processes. More would not help: the largest kernel takes as long as all others together."""

_REQUEST = ScanRequest(columns=("offset",), max_decompressed=0)


def _warm_scan() -> None:
    """Call the kernels of a scan, which compiles them, with empty input of the argument types that reading uses."""
    from kafkalog_spark.kernels.batch_selection import first_invalid_batch
    from kafkalog_spark.kernels.primitives import CRC32_TABLE, CRC32C_TABLE
    from kafkalog_spark.kernels.record_end import end_of_records
    from kafkalog_spark.kernels.sweep import sweep
    from kafkalog_spark.log.decode.batch_selection import BatchSelection
    from kafkalog_spark.log.decode.row_buffers import RowBuffers

    payload = Scratch(64).read_only()
    table = np.empty((0, len(HeaderColumn)), np.int64)
    first_invalid_batch(table, -1, 0, layout.MAX_INT64)
    BatchSelection.of(table, np.empty(0, np.uint8), RowBuffers("t", 0, _REQUEST), _REQUEST)
    sweep(payload, 0, 0, np.empty((1, len(HeaderColumn)), np.int64), CRC32C_TABLE, CRC32_TABLE)
    end_of_records(payload, 0, 0, 0)


def _warm_decoding() -> None:
    from kafkalog_spark.kernels.decode_v2 import decode_v2
    from kafkalog_spark.kernels.unopened_batches import rows_from_headers

    _decode(decode_v2)
    _decode(rows_from_headers)


def _warm_legacy_decoding() -> None:
    from kafkalog_spark.kernels.decode_legacy import decode_legacy, inspect_message_set
    from kafkalog_spark.kernels.primitives import CRC32_TABLE

    inspect_message_set(Scratch(64).read_only(), 0, 0, 1, CRC32_TABLE)
    _decode(decode_legacy)


def _decode(kernel: Callable[..., object]) -> None:
    from kafkalog_spark.kernels.rows import BatchColumn
    from kafkalog_spark.log.decode.row_buffers import RowBuffers

    nothing, batches = np.empty(0, np.int64), np.empty((0, len(BatchColumn)), np.int64)
    rows = RowBuffers("t", 0, _REQUEST)
    rows.begin_call()
    buffers = rows.cursor, rows.limits, rows.offset_filter, rows.timestamp_filter, rows.rows
    kernel(Scratch(64).read_only(), nothing, nothing, batches, *buffers)


def _warm_search() -> None:
    from kafkalog_spark.kernels.rows import BatchColumn
    from kafkalog_spark.kernels.search import search_legacy, search_v2
    from kafkalog_spark.log.decode.run_decoder import patterns_of

    nothing, batches = np.empty(0, np.int64), np.empty((0, len(BatchColumn)), np.int64)
    patterns = patterns_of(RecordPredicate())
    for search in (search_v2, search_legacy):
        search(
            Scratch(64).read_only(), nothing, nothing, batches, np.empty(0, np.int64), np.empty(0, np.uint8), patterns
        )


def _warm_json() -> None:
    ResolvedFormat("json", {}).decoder(pa.schema([("a", pa.string())])).decode(pa.array([b'{"a":"b"}']))


def _warm_avro() -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
    columns = pa.schema([("a", pa.int32())])
    for values in (pa.array([b"\2"], pa.binary()), pa.array([None], pa.binary())):
        ResolvedFormat("avro", {"schema": schema}).decoder(columns).decode(values)


def _warm_protobuf() -> None:
    from google.protobuf import descriptor_pb2

    from kafkalog_spark.typed.columns.binary_values import Values
    from kafkalog_spark.typed.protobuf.read_options import read_options_of
    from kafkalog_spark.typed.protobuf.resolving_decoder import ProtobufResolvingDecoder

    message = descriptor_pb2.FileDescriptorProto.DESCRIPTOR.fields_by_name["options"].message_type.file
    uninterpreted = message.message_types_by_name["UninterpretedOption"]
    columns = pa.schema([("identifier_value", pa.string())])
    decoder = ProtobufResolvingDecoder(uninterpreted, columns, read_options_of({}))
    entries = np.full(1, decoder.add_schema(uninterpreted), np.int64)
    decoder.decode(Values.of(pa.array([b""], pa.binary())), entries)


def _warm_encoding() -> None:
    from kafkalog_spark.typed.columns import byte_slices_kernel  # noqa: F401  compiled when it is imported


def _warm_writing() -> None:
    from kafkalog_spark.kernels import encode, partitioner  # noqa: F401  compiled when they are imported


def _call_entry_point(entry: EntryPoint) -> None:
    entry.load()()


GROUPS: Mapping[str, Sequence[Callable[[], object]]] = {
    "json": (_warm_json,),
    "avro": (_warm_avro, _warm_encoding),
    "protobuf": (_warm_protobuf, _warm_encoding),
    "read": (_warm_decoding, _warm_scan, _warm_search, _warm_legacy_decoding),
    "write": (_warm_writing,),
    **{entry.name: (partial(_call_entry_point, entry),) for entry in entry_points(group="kafkalog.kernels")},
}


def warm(groups: Sequence[str] = ("read", "write", "json", "avro", "protobuf")) -> None:
    """Load the kernels of these groups into this process, and compile those that are not in the cache."""
    for task in (task for group in groups for task in GROUPS[group]):
        with suppress(ModuleNotFoundError):  # the package belongs to an extra that is not installed
            task()


def main(arguments: Sequence[str] | None = None) -> int:
    from tqdm import tqdm

    parser = argparse.ArgumentParser("python -m kafkalog_spark.warm", description="Compile the kernels, once.")
    parser.add_argument("--only", metavar="GROUPS", help=f"of {','.join(GROUPS)}; default: all that are installed")
    only = parser.parse_args(arguments).only
    groups = only.split(",") if only else list(GROUPS)
    if unknown := sorted(set(groups) - set(GROUPS)):
        parser.error(f"--only: unknown groups {', '.join(unknown)}; the groups are {', '.join(GROUPS)}")
    began = time.perf_counter()
    # GROUPS begins with the groups that take longest.
    order = sorted(groups, key=list(GROUPS).index)
    tasks = {task: group for group in order for task in GROUPS[group]}
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(task): group for task, group in tasks.items()}
        with tqdm(total=len(running), unit=" kernels", desc="compiling", leave=False, disable=None) as bar:
            for finished in as_completed(running):
                bar.update()
                try:
                    finished.result()
                except ModuleNotFoundError as error:
                    if only:
                        parser.error(f"--only {running[finished]}: {error.name} is not installed")
    print(f"kernels ready after {time.perf_counter() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
