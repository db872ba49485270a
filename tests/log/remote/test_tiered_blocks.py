"""A tiered segment read through ObjectFile: blocks of its own bytes, each made of whole chunks that are fetched as one
range of the object and decoded in the threads that fetch."""

from __future__ import annotations

import random
from uuid import uuid4

import numpy as np
import pytest
import zstandard

from kafkalog_spark.log.tiered.chunk_codec import ChunkCodec
from kafkalog_spark.log.tiered.chunks import ChunkIndex
from kafkalog_spark.store.interface import Buffer
from kafkalog_spark.store.object_file import ObjectFile
from tests.log.tiered.aiven_writer import original_bytes
from tests.store.buckets import s3_store
from tests.store.fault_proxy import FaultProxy
from tests.store.s3_server import S3Server

CHUNK = 300_000
SEGMENT = b"".join(random.Random(number).randbytes(500) * 20 for number in range(1000))  # 10 MB that compress


@pytest.mark.parametrize("first", [0, 3_333_333])
def test_segment_of_compressed_chunks_is_read_in_blocks(s3: S3Server, proxy: FaultProxy, first: int) -> None:
    chunks = [zstandard.compress(SEGMENT[at : at + CHUNK]) for at in range(0, len(SEGMENT), CHUNK)]
    index = ChunkIndex.of_variable(CHUNK, len(SEGMENT), np.array([len(chunk) for chunk in chunks], np.int64))
    path = f"s3://tier/{uuid4().hex}/0-x.log"
    s3_store(s3).put(path, b"".join(chunks))
    store = s3_store(s3, proxy)
    facts = store.list(path.rpartition("/")[0]).files["0-x.log"]
    assert facts.size == index.object_size
    ranges = store.ranges(path, facts)
    codec = ChunkCodec(is_compressed=True)

    def fetch(begin: int, end: int) -> Buffer:
        wanted = index.object_range(begin, end)
        assert begin % CHUNK == 0, "whole chunks are asked for"
        return original_bytes(codec, index, bytes(ranges(wanted.begin, wanted.end)), begin, end)

    file = ObjectFile(len(SEGMENT), fetch, has_changed=lambda: store.has_changed(path, facts), align=CHUNK)
    file.expect(first, len(SEGMENT))
    target = bytearray(len(SEGMENT) - first)
    for at in range(0, len(target), 2 << 20):
        file.read_into(first + at, memoryview(target)[at : at + (2 << 20)])
    assert target == SEGMENT[first:]
    assert proxy.count("GET") <= 3
    assert proxy.sent < index.object_size + 10_000
    assert file.read(CHUNK - 30, 61) == SEGMENT[CHUNK - 30 : CHUNK + 31]
    assert not file.has_changed()
    file.close()
