"""The last records of tiered partitions, and mode=PERMISSIVE over remote segments: what a plain read gives."""

from __future__ import annotations

import pytest

from kafkalog_spark.log.log_dir import LogDirs
from tests.log.helpers.rows import plain_rows
from tests.log.tiered.golden_tiered import GoldenCluster


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_tail_and_permissive_reads_of_remote_segments_equal_a_plain_read(name: str) -> None:
    cluster = GoldenCluster(name)
    dirs = LogDirs.open([cluster.data, cluster.remote])
    columns = ("partition", "offset", "value")
    for topic, partitions in dirs.topics.items():
        if topic.startswith("__"):
            continue
        rows = plain_rows(dirs.scan(topic, columns=columns))
        expected = [row for number in partitions for row in [r for r in rows if r["partition"] == number][-7:]]
        assert plain_rows(dirs.scan(topic, columns=columns, tail=7)) == expected
        found = list(dirs.scan(topic, columns=columns, damage_rows=True))
        assert [row for batch in found for row in batch.to_pylist() if row["_error"] is not None] == []
        assert plain_rows(batch.select(columns) for batch in found) == rows
