"""The table a log is read as, and names that are not in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.decode.record_schema import COLUMNS, record_schema
from kafkalog_spark.log.log_dir import LogDirs
from tests.log.helpers.damaged_log import BEFORE, TOPIC, write_segments


def test_columns_have_the_requested_order() -> None:
    assert record_schema(("offset", "key")).names == ["offset", "key"]
    assert record_schema().names == list(COLUMNS)


def test_unknown_column_is_named_with_the_existing_ones(tmp_path: Path) -> None:
    write_segments(tmp_path, {0: BEFORE})
    dirs = LogDirs.open(tmp_path / "orders-0")
    with pytest.raises(OptionError, match=r"there is no column 'ofset'; the columns are key, value, topic, .* headers"):
        list(dirs.scan(TOPIC, columns=("offset", "ofset")))
