"""Kernels on batches that lie, every buffer up against a page that nobody may touch, and what they say against plain
twins.

    python -m tests.broker.storage.helpers.guarded_fuzz SEED COUNT DIRECTORY

Ends with a signal when a kernel reads or writes out of bounds, with an AssertionError when it says something else than
its plain twin. DIRECTORY takes the logs, and `note`: the batch that is just being looked at.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import numpy as np

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.append import kernel_loading, record_walk
from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.compaction import batch_filter, legacy_batches, legacy_filter, offset_map
from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.kernels.record_end import end_of_records
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.codecs import scratch
from kafkalog_spark.log.decode import row_buffers, row_memory, run_decoder
from kafkalog_spark.log.decode.scan_request import RecordPredicate
from kafkalog_spark.log.read import partition_scan, segment_file
from kafkalog_spark.log.write import segment_recovery
from tests.broker.storage.helpers import guarded_messages
from tests.broker.storage.helpers.cleaned_logs import clean, compacted_log
from tests.broker.storage.helpers.stored_logs import NOW, reopened
from tests.log.helpers.damaged_log import read_all, write_segments
from tests.log.helpers.guarded import guarded_bytes, install
from tests.log.helpers.lying_batches import TIME, lying_batch
from tests.log.helpers.plain_decoder import Malformed, decompress

ALLOCATING = (
    batch_filter, legacy_batches, legacy_filter, offset_map, record_walk, segment_recovery, scratch,
    segment_file, row_memory, run_decoder, partition_scan,
)  # fmt: skip
SEARCHES = (
    RecordPredicate(key=b"key"),
    RecordPredicate(key_prefix=b""),
    RecordPredicate(value_contains=b"uev"),
    RecordPredicate(header_name=b"", header_value=b""),
    RecordPredicate(key_prefix=b"", value_contains=b"", header_name=b"h"),
)
FILES = 8
"""Of so many batches one is read from a file of its own, and the good ones of so many are cleaned together."""


def both_walks(payload: np.ndarray, count: int) -> None:
    """Compare the compiled walk and lookup with the Python ones on the same guarded bytes."""
    said = []
    for limit in (10**9, -1):
        record_walk.PLAIN_RECORDS = limit
        for question in (
            lambda: record_walk.walk_records(payload.data, count, TIME),
            lambda: record_walk.find_timestamp(payload.data, count, TIME, TIME + 500, 1),
        ):
            try:
                said.append(str(question()))  # type: ignore[no-untyped-call]
            except CorruptBatch as error:
                said.append(error.what)
    assert said[0] == said[2], said
    if said[0].startswith("RecordFacts"):  # the look-up trusts the walk, and reads no further than it must
        assert said[1] == said[3], said


def plain_end_of_records(data: bytes, count: int) -> int:
    """What `end_of_records` is to say: 32-bit varints as in Java, -1 where a record is missing, -2 for a bad length."""
    at = 0
    for _ in range(count):
        raw, shift = 0, 0
        while True:
            if at == len(data) or shift == 35:
                return -1
            raw |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 0x80:
                break
        raw &= 0xFFFFFFFF
        size = (raw >> 1) ^ -(raw & 1)
        if size < 0:
            return -2
        if size > len(data) - at:
            return -1
        at += size
    return at


def one_payload(data: bytes, count: int) -> None:
    """Run the kernels that read the uncompressed records of one batch."""
    for at_start in (False, True):
        payload = guarded_bytes(data, at_start=at_start)
        if 0 < count <= 1000:
            both_walks(payload, count)
            assert end_of_records(payload, 0, len(data), count) == plain_end_of_records(data, count), data.hex()


def in_a_file(data: bytes, directory: Path) -> None:
    """Reader, check and recovery of a log that holds one batch: what they say is looked at in test_batch_fuzz.py."""
    written = write_segments(directory, {0: data})
    for columns in (("offset", "timestamp", "key", "value", "headers"), ("offset", "value"), ("timestamp",)):
        try:
            read_all(written, 1, columns)
        except KafkalogError:
            pass
    for wanted in SEARCHES:
        try:
            read_all(written, 1, ("offset", "headers"), wanted=wanted)
        except KafkalogError:
            pass
    check_log_dirs([written])
    reopened(directory, clean=False).close()


def cleaned(batches: list[bytes], directory: Path) -> None:
    """Compact the batches that produce accepts."""
    log = compacted_log(directory)
    for data in batches:
        try:
            log.append(validate_batch(data, log.config, NOW), NOW)
        except BrokerError:
            pass
    clean(log, NOW)
    log.close()


def main(seed: int, count: int, directory: Path) -> None:
    """Check `count` batches and print their number."""
    row_buffers.KEY_BYTES = row_buffers.VALUE_BYTES = row_buffers.HEADER_BYTES = 256  # they have to grow
    row_buffers.HEADERS = 4
    kernel_loading.load_kernel()
    install(*ALLOCATING, *guarded_messages.ALLOCATING)
    draw, note = random.Random(seed), os.open(directory / "note", os.O_RDWR | os.O_CREAT)
    together: list[bytes] = []
    for place in range(count):
        data = lying_batch(draw).data
        os.pwrite(note, data.hex().encode() + b"\n", 0)
        announced = int.from_bytes(data[57:61], "big", signed=True)
        try:
            one_payload(decompress(data[22] & 7, data[61:]), announced)
        except Malformed:
            pass  # no records to look at
        guarded_messages.converted_down(data, draw)
        for magic in (0, 1):
            lying = guarded_messages.lying_set(draw, magic)
            os.pwrite(note, lying.hex().encode() + b"\n", 0)
            guarded_messages.converted_up(lying, magic)
            guarded_messages.converted_down(lying, draw)
        together.append(data)
        if place % FILES == FILES - 1:
            in_a_file(data, directory / f"file-{place}")
            cleaned(together, directory / f"cleaned-{place}")
            together = []
    print(count)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
