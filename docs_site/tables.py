"""Write the generated part of docs/tables.md: make pages. kafkalog_spark/log/tables/table.py declares the columns."""

from __future__ import annotations

import re
from pathlib import Path

from kafkalog_spark.log.tables.table import TABLES
from kafkalog_spark.source.table_reader import columns_page

PAGE = Path(__file__).parent.parent / "docs" / "tables.md"


def main() -> None:
    text, columns = PAGE.read_text(encoding="utf-8"), columns_page(TABLES.values())
    between = re.compile(r"(?<=<!-- tables: made by make pages -->\n).*(?=<!-- tables end -->)", re.DOTALL)
    PAGE.write_text(between.sub(lambda _: columns, text), encoding="utf-8")


if __name__ == "__main__":
    main()
