"""docs/tables.md: its lines run. The columns of tables, on a page beside the code, are those of the declarations."""

from __future__ import annotations

import re

from kafkalog_spark.log.tables.declarations import TABLES
from kafkalog_spark.typed.ddl import ddl_of_type
from tests.golden_data import data_dir, golden_logs
from tests.pages import listings, text_of

PAGE, COLUMNS = text_of("docs/tables.md"), text_of("kafkalog_spark/log/tables/README.md")


def lines_with(library: str) -> str:
    (code,) = [listing.code for listing in listings("docs/tables.md", "python") if f"import {library}" in listing.code]
    return code.replace('"kafka-logs"', repr(str(data_dir())))


def test_columns_on_the_page_equal_the_declarations() -> None:
    for name, section in re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", COLUMNS, re.DOTALL | re.MULTILINE):
        rows = re.findall(r"^\| (`[\w`, ]+`) \| (.+?) \| (.+) \|$", section, re.MULTILINE)
        types = [
            (column, type_)
            for names, kinds, _ in rows
            for column, type_ in zip(re.findall(r"\w+", names), _split(kinds), strict=True)
        ]
        table = TABLES[name]
        assert types == [(column, ddl_of_type(kind)) for column, kind in table.columns.items()], name
        on_demand = [names.strip("`") for names, _, meaning in rows if "Read only where" in meaning]
        assert on_demand == list(table.on_demand), name
    assert re.findall(r"^## (\w+)$", COLUMNS, re.MULTILINE) == list(TABLES)


def _split(kinds: str) -> list[str]:
    """The types of one or two columns."""
    return kinds.split(", ") if "<" not in kinds else [kinds.strip("`")]


def test_every_table_is_in_the_list() -> None:
    assert re.findall(r"^\| \[(\w+)\]\(\S+#\1\)", PAGE, re.MULTILINE) == list(TABLES)


def test_duckdb_example_runs(capsys) -> None:
    exec(lines_with("duckdb"), {})
    shown = capsys.readouterr().out
    sizes = {
        codec: sum(b.size for log in golden_logs("kafka-4.3.0", f"java-{codec}", crashed=False)
                   for path in log.segments() for b in log.batches(path))
        for codec in ("gzip", "lz4")
    }  # fmt: skip
    for codec, size in sizes.items():
        assert re.search(rf"java-{codec}\s*│\s*{codec}\s*│\s*{size}\b", shown), shown


def test_polars_example_runs(capsys) -> None:
    exec(lines_with("polars"), {})
    shown = capsys.readouterr().out
    assert re.search(r"reporting\s*┆ 176\b", shown)
    assert re.search(r"billing\s*┆ 81\b", shown)
