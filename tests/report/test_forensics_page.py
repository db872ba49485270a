"""docs/forensics.md in DuckDB: seven questions, each answered by its query as it is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.tables.declarations import TABLES
from tests.forensics_page import PAGE, QUERIES, check_answers, setup_lines
from tests.golden_data import data_dir
from tests.pages import text_of
from tests.report.shop_directory import write_shop


@pytest.mark.local_only("it writes to its source")
def test_forensics_queries_give_their_answers_in_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(QUERIES) == 7 == text_of(PAGE).count("\n## ")
    root = tmp_path / "kafka-logs"
    ends = write_shop(root)
    names: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    exec(setup_lines("duckdb"), names)
    check_answers([names["sql"].sql(query).to_arrow_table().to_pylist() for query in QUERIES], root, ends)


@pytest.mark.parametrize("name", ["records", *TABLES])
def test_every_table_is_an_arrow_record_batch_reader(name: str) -> None:
    reader = LogDirs.open(data_dir()).table(name)
    assert isinstance(reader, pa.RecordBatchReader)
    rows = reader.read_all()
    assert rows.schema == reader.schema
    assert rows.num_rows or name == "findings"


def test_records_are_a_table_with_columns_and_no_history() -> None:
    dirs = LogDirs.open(data_dir())
    found = dirs.table("records", "headers", columns=("offset", "key")).read_all()
    assert found == pa.Table.from_batches(dirs.scan("headers", columns=("offset", "key")))
    assert dirs.table("records").read_all().num_rows == sum(batch.num_rows for batch in dirs.scan(columns=("offset",)))
    with pytest.raises(OptionError, match="no history"):
        dirs.table("records", history=True)
