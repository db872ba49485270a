"""Writes to a bucket without Spark: what tasks stage becomes part of the log, whole, once, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.object_store.s3_server import S3Server
from tests.sink.helpers.written_buckets import Place, write
from tests.sink.helpers.written_logs import values


@pytest.fixture
def place(s3: S3Server) -> Place:
    return Place.new(s3)


def test_records_of_all_tasks_follow_one_another_in_order(place: Place, tmp_path: Path) -> None:
    assert write(place.bucket(), values(*range(5), topic="t"), values(*range(5, 9), topic="t"))
    assert place.texts() == [str(n) for n in range(9)]
    assert write(place.bucket(), values("next", topic="t"))
    assert place.texts()[-1] == "next"
    assert [row["offset"] for row in place.rows()] == list(range(10))
    place.check(tmp_path)
