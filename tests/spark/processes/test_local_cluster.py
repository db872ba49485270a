"""Executors that are processes of their own, each with the options and splits as they come over the network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.helpers.rows import plain_rows
from tests.source.helpers.driver import read

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parents[3]


@pytest.mark.spark
@pytest.mark.timeout(900)  # four JVMs start one after the other, each in 5 s or, on a busy machine, in a minute
@pytest.mark.parametrize("executors", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_local_cluster_read_equals_a_read_in_one_process(golden: Path, tmp_path: Path, executors: int) -> None:
    result = tmp_path / "result.arrow"
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.helpers.local_cluster", str(golden), str(result), str(executors)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=840,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with pa.OSFile(str(result)) as source:
        found = pa.ipc.open_file(source).read_all()
    order = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    expected = read(golden, includeHeaders=True)
    assert plain_rows(found.sort_by(order).to_batches()) == plain_rows(expected.sort_by(order).to_batches())
    assert found.num_rows > 10_000
    streamed = pa.concat_tables(pq.read_table(path) for path in Path(f"{result}.stream").glob("*.parquet"))
    assert streamed.sort_by(order).equals(expected.select(streamed.column_names).sort_by(order).cast(streamed.schema))
