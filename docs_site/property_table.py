"""The table of the properties that only this broker has, in docs/broker.md, made from their definitions.

`python -m docs_site.property_table` writes it; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kafkalog_broker.config.property_list import BROKER_PROPERTIES, TOPIC_PROPERTIES

OWN_PREFIX = "kafkalog."
"""First letters of the names of properties that only this broker has."""

PAGE = Path(__file__).parent.parent / "docs" / "broker.md"

_TABLE = re.compile(r"(<!-- own properties:.*?-->\n).*?(<!-- own properties end -->)", re.DOTALL)


def page_with_table() -> str:
    """Return the text of docs/broker.md, with the table that the definitions give."""
    text = PAGE.read_text(encoding="utf-8")
    return _TABLE.sub(lambda found: found[1] + "\n".join(_lines()) + "\n" + found[2], text)


def _lines() -> Iterator[str]:
    rows = [
        f"| `{name}` | {of} | {'' if found.default is None else f'`{found.default}`'} | {found.doc} |"
        for of, properties in (("broker", BROKER_PROPERTIES), ("topic", TOPIC_PROPERTIES))
        for name, found in properties.items()
        if name.startswith(OWN_PREFIX)
    ]
    if not rows:
        yield "None yet."
        return
    yield "| property | of | default | meaning |"
    yield "|---|---|---|---|"
    yield from rows


if __name__ == "__main__":
    PAGE.write_text(page_with_table(), encoding="utf-8")
