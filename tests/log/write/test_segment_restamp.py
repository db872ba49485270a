"""A finished file gets its offsets as if it had been appended where it goes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from kafkalog_spark.errors import CorruptBatch
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.log.write.record_encoder import BatchParams, RecordEncoder
from kafkalog_spark.log.write.segment_restamping import restamp_segment
from tests.log.helpers.encoded_batches import encode_batches
from tests.log.helpers.log_writer import LogWriter

START = 1_700_000_000_000


def records(count: int) -> pa.Table:
    return pa.table(
        {
            "value": pa.array([b"%06d" % n * 20 for n in range(count)]),
            "timestamp": pa.array([START + n * 7919 % 1009 for n in range(count)], pa.int64()),
        }
    )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("base_offset", [0, 2**40])
def test_restamped_files_equal_those_written_at_the_final_offsets(
    tmp_path: Path, codec: Codec, base_offset: int
) -> None:
    params = BatchParams(codec=codec, batch_size=2000, leader_epoch=5)
    with LogWriter(tmp_path / "t-0", base_offset=base_offset) as writer:
        writer.append_all(list(encode_batches(records(3000), base_offset, params)))
    staged = tmp_path / "staged.log"
    unknown = BatchParams(codec=codec, batch_size=2000)
    with staged.open("wb") as out:
        for run in RecordEncoder(unknown).runs(records(3000), 0):
            assert sum(size for size, _ in run.batches) == len(run.data)
            out.write(run.data)
    for _ in range(2):  # a second time gives the same
        assert restamp_segment(staged, base_offset, 5) == base_offset + 3000
        for suffix in (".log", ".index", ".timeindex"):
            written = tmp_path / "t-0" / f"{base_offset:020d}{suffix}"
            assert staged.with_suffix(suffix).read_bytes() == written.read_bytes(), suffix


@pytest.mark.parametrize("cut", [1, 60, 100, 1000])
def test_file_that_ends_inside_a_batch_is_refused(tmp_path: Path, cut: int) -> None:
    staged = tmp_path / "staged.log"
    data = b"".join(batch.data for batch in encode_batches(records(100), 0, BatchParams(batch_size=2000)))
    staged.write_bytes(data[:-cut])
    with pytest.raises(CorruptBatch, match=r"staged\.log at byte \d+: (invalid batch of|\d+ bytes remain)"):
        restamp_segment(staged, 0, 0)
    staged.write_bytes(data[:16] + b"\1" + data[17:])
    with pytest.raises(CorruptBatch, match="a batch of magic 1 cannot get other offsets"):
        restamp_segment(staged, 0, 0)
