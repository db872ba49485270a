"""One segment of any size, made in seconds: the same encoded batches again and again, with their own offsets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from kafkalog_spark.format.layout import Codec
from kafkalog_spark.log.write.record_encoder import BatchParams
from tests.log.helpers.encoded_batches import encode_batches, restamped
from tests.log.helpers.log_writer import LogWriter
from tests.source.helpers.made_logs import FIRST_TIMESTAMP

TEMPLATE_BYTES = 16 << 20  # of values, encoded once


def write_segment(log_dir: Path, size: int, *, value_size: int, codec: Codec, batch_size: int) -> int:
    """Topic t, partition 0, one segment of about `size` bytes, values of `value_size`, half random and half zeros;
    returns the number of records. batch_size: bytes before compression."""
    count = max(TEMPLATE_BYTES // value_size, 1)
    data = np.zeros((count, value_size), np.uint8)
    data[:, ::2] = np.random.default_rng(0).integers(0, 256, data[:, ::2].shape, np.uint8)
    ends = np.arange(0, (count + 1) * value_size, value_size, dtype=np.int32)
    values = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])
    timestamps = pa.array(np.arange(count) + FIRST_TIMESTAMP, pa.int64())
    params = BatchParams(codec=codec, batch_size=batch_size, max_batch_bytes=64 << 20)
    records = pa.RecordBatch.from_pydict({"value": values, "timestamp": timestamps})
    templates = list(encode_batches(records, 0, params))
    (log_dir / "meta.properties").parent.mkdir(parents=True, exist_ok=True)
    (log_dir / "meta.properties").touch()
    with LogWriter(log_dir / "t-0", segment_bytes=2**31 - 1) as writer:
        written = 0
        while written < size:
            for batch in templates:
                writer.append(restamped(batch, writer.next_offset))
                written += len(batch.data)
        return writer.next_offset
