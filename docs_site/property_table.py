"""Table in docs/broker.md of the properties that Kafka does not have, generated from their definitions.

`python -m docs_site.property_table` writes it. A test fails if the page is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kafkalog_broker.config.property_list import BROKER_PROPERTIES, TOPIC_PROPERTIES

OWN_PREFIX = "kafkalog."
"""Prefix of the names of properties that Kafka does not have."""

PAGE = Path(__file__).parent.parent / "docs" / "broker.md"

_TABLE = re.compile(r"(<!-- own properties:.*?-->\n).*?(<!-- own properties end -->)", re.DOTALL)


def page_with_table() -> str:
    """Return the text of docs/broker.md with its table generated from the definitions."""
    text = PAGE.read_text(encoding="utf-8")
    return _TABLE.sub(lambda match: match[1] + "\n".join(_lines()) + "\n" + match[2], text)


def _lines() -> Iterator[str]:
    rows = [
        f"| `{name}` | {scope} | {'' if definition.default is None else f'`{definition.default}`'} | {definition.doc} |"
        for scope, properties in (("broker", BROKER_PROPERTIES), ("topic", TOPIC_PROPERTIES))
        for name, definition in properties.items()
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
