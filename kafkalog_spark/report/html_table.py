"""Tables of a page: cells that sort by their values, whatever their text is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from kafkalog_spark.report.words import NOTHING, count_text, duration_text, size_text, time_text


@dataclass(frozen=True, slots=True)
class Cell:
    """text: what is read. value: what it sorts by; None for a text, which sorts by itself. share: of a bar beneath the
    number, 0 to 1. kind: of the mark that it is, such as `bad`."""

    text: str
    value: float | None = None
    share: float | None = None
    kind: str = ""


def text(value: str | None) -> Cell:
    """A text."""
    return Cell(NOTHING if value is None else value)


def number(value: int | None) -> Cell:
    """A count or an offset."""
    return Cell(count_text(value), -1 if value is None else value)


def size(value: int, of: int = 0) -> Cell:
    """Bytes. of: the largest in the table, for a bar."""
    return Cell(size_text(value), value, value / of if of else None)


def time(value: int | None) -> Cell:
    """ms."""
    return Cell(time_text(value), -1 if value is None else value)


def duration(value: int | None) -> Cell:
    """ms."""
    return Cell(duration_text(value), -1 if value is None else value)


def mark(value: str, kind: str) -> Cell:
    """A word with a colour: `bad`, `warn`, `good`, `plain`."""
    return Cell(value, kind=kind)


MOST_ROWS = 1000
"""Rows of a table on the page: it stays readable, and below its size."""


def html_table(heads: Sequence[str], rows: Iterable[Sequence[Cell]], what: str) -> str:
    """A table that scrolls by itself. what: its rows are, such as "partitions"."""
    found = list(rows)
    numeric = [cell.value is not None for cell in found[0]] if found else [False] * len(heads)
    head = "".join(
        f'<th scope="col" tabindex="0"{" class=num" if is_number else ""}>{escape(name)}</th>'
        for name, is_number in zip(heads, numeric, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in found[:MOST_ROWS])
    more = len(found) - MOST_ROWS
    note = f'<p class="note">{count_text(more)} more {escape(what)} are not shown.</p>' if more > 0 else ""
    search = (
        f'<input class="filter" type="search" placeholder="filter {escape(what)}" aria-label="filter {escape(what)}">'
    )
    return (
        f"{search if len(found) > 12 else ''}"
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        f"{note}"
    )


def _cell(cell: Cell) -> str:
    shown = escape(cell.text)
    if cell.kind:
        return f'<td><span class="mark {cell.kind}">{shown}</span></td>'
    if cell.value is None:
        return f"<td>{shown}</td>"
    bar = "" if cell.share is None else f' style="--share:{cell.share * 100:.1f}%"'
    kind = "num bar" if bar else "num"
    return f'<td class="{kind}" data-v="{cell.value:g}"{bar}>{shown}</td>' if _exact(cell.value) else (
        f'<td class="{kind}" data-v="{cell.value:.0f}"{bar}>{shown}</td>'
    )  # fmt: skip


def _exact(value: float) -> bool:
    return float(f"{value:g}") == value
