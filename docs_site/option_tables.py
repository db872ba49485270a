"""Tables of options in docs/options.md and docs/sink.md, generated from the declarations of the options.

`python -m docs_site.option_tables` writes them. A test fails if a page is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

from kafkalog_spark.log.tiered import key_ring
from kafkalog_spark.options import OptionSpec
from kafkalog_spark.sink import foreign_options as foreign_sink_options
from kafkalog_spark.sink.options import WRITE_OPTIONS
from kafkalog_spark.source import foreign_options
from kafkalog_spark.source.options import READ_OPTIONS

DOCS = Path(__file__).parent.parent / "docs"
PAGES = ("options.md", "sink.md")

_TABLE = re.compile(r"(<!-- options:.*?-->\n).*?(<!-- options end -->)", re.DOTALL)
_READ_PATTERNS = (
    (
        key_ring.KEY_OPTION_PREFIX + "ID",
        None,
        (
            "Private RSA key for segments that Aiven's plugin encrypted with the key pair ID: a PEM, or a path to one "
            "that every worker can read. It is never logged or shown. Ours."
        ),
    ),
    (
        "value.*",
        None,
        "Options of the format of values; `key.*` of keys, without a prefix of both (docs/typed.md). Ours.",
    ),
)
"""Rows of options whose names have a part that users choose."""

Row = tuple[str, str | None, str]
"""Name, default and meaning of an option."""


def page_with_table(page: str) -> str:
    """Return the text of a page of docs/ with its table generated from the declarations."""
    if page == "options.md":
        rows = [*_declared(READ_OPTIONS), *_READ_PATTERNS]
        rows += _foreign(rows, foreign_options.IGNORED, foreign_options.REFUSED)
    else:
        rows = list(_declared(WRITE_OPTIONS))
        rows += _foreign(rows, foreign_sink_options.IGNORED, foreign_sink_options.REFUSED)
    text = (DOCS / page).read_text(encoding="utf-8")
    return _TABLE.sub(lambda match: match[1] + "\n".join(_lines(rows)) + "\n" + match[2], text)


def _declared(specs: tuple[OptionSpec, ...]) -> Iterator[Row]:
    return ((spec.name, spec.default, spec.meaning) for spec in specs)


def _foreign(declared: list[Row], ignored: Mapping[str, str], refused: Mapping[str, str]) -> Iterator[Row]:
    """Yield rows of options of other connectors. Ignored options that have a row already are left out."""
    names = {name for name, _, _ in declared}
    yield from ((name, None, f"Accepted and ignored: {why}") for name, why in ignored.items() if name not in names)
    yield from ((name, None, "Refused, as in the connector.") for name in refused)


def _lines(rows: list[Row]) -> Iterator[str]:
    """Yield the lines of the table. Neighbours with the same default and meaning share a line."""
    yield "| option | default | meaning |"
    yield "|---|---|---|"
    for (default, meaning), group in groupby(rows, key=lambda row: row[1:]):
        names = ", ".join(f"`{name}`" for name, _, _ in group)
        yield f"| {names} | {'' if default is None else f'`{default}`'} | {meaning} |"


if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(page_with_table(name), encoding="utf-8")
