"""Facts to one HTML file with everything in it: no request leaves the reader's browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources

from kafkalog_spark.report.charts import charts, producer_name
from kafkalog_spark.report.facts import Facts, PartitionFacts, TopicFacts
from kafkalog_spark.report.words import (
    NOTHING,
    bytes_text,
    count_text,
    duration_text,
    rounded_text,
    short_count,
    size_text,
    time_text,
)

# Tables of a page: cells that sort by their values, whatever their text is.


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
    all_rows = list(rows)
    numeric = [cell.value is not None for cell in all_rows[0]] if all_rows else [False] * len(heads)
    head = "".join(
        f'<th scope="col" tabindex="0"{" class=num" if is_number else ""}>{escape(name)}</th>'
        for name, is_number in zip(heads, numeric, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in all_rows[:MOST_ROWS])
    more = len(all_rows) - MOST_ROWS
    note = f'<p class="note">{count_text(more)} more {escape(what)} are not shown.</p>' if more > 0 else ""
    search = (
        f'<input class="filter" type="search" placeholder="filter {escape(what)}" aria-label="filter {escape(what)}">'
    )
    return (
        f"{search if len(all_rows) > 12 else ''}"
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
    return f'<td class="{"num bar" if bar else "num"}" data-v="{cell.value}"{bar}>{shown}</td>'


_SHOWN_UNREAD = 5
"""Stretches that cannot be read, in a line about a topic; the findings have all."""


def page(facts: Facts, title: str = "Kafka log report") -> str:
    """The file's text."""
    specs = charts(facts)
    sections = list(_sections(facts, specs))
    links = "".join(f'<a href="#{name}">{escape(head)}</a>' for name, head, _ in sections)
    body = "".join(
        f'<section id="{name}"><h2>{escape(head)}</h2>{content}</section>' for name, head, content in sections
    )
    data = json.dumps(specs, separators=(",", ":")).replace("<", "\\u003c")  # neither </script nor <!-- in a script
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{_file('page.css')}</style></head><body>"
        f"{_header(facts, title)}<nav>{links}</nav><main>{body}</main>"
        f"<footer>Made by kafkalog-report at {time_text(facts.made_at)} UTC. All times are UTC.</footer>"
        f'<script type="application/json" id="charts">{data}</script>'
        f'<script type="module">{vega_bundle()}</script><script type="module">{_file("page.js")}</script>'
        "</body></html>\n"
    )


_ENDS_A_SCRIPT = re.compile(r"<(?=/script|!--)", re.IGNORECASE)
"""Texts that HTML interprets inside a script: its end, and what makes `<script` in it hide that end. A string of
JavaScript, the only place where a bundle may have it, is the same with a backslash after the `<`."""


@cache
def vega_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which makes `window.vegaEmbed`; 0.9 MB."""
    import vl_convert

    made: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return _ENDS_A_SCRIPT.sub(r"<\\", made)


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _header(facts: Facts, title: str) -> str:
    where = ", ".join(facts.paths)
    clusters = f" · cluster {', '.join(facts.cluster_ids)}" if facts.cluster_ids else ""
    tiles = "".join(
        f'<div class="tile {kind}"><b>{escape(value)}</b><span>{escape(what)}</span></div>'
        for value, what, kind in _tiles(facts)
    )
    return (
        f'<header><h1>{escape(title)}</h1><p class="where">{escape(where)}{escape(clusters)}</p>'
        f'<div class="tiles">{tiles}</div></header>'
    )


def _tiles(facts: Facts) -> Iterator[tuple[str, str, str]]:
    yield size_text(facts.size), "in .log files", ""
    yield short_count(facts.records), "records", ""
    yield f"{len(facts.topics)} / {count_text(len(facts.partitions))}", "topics / partitions", ""
    starts = [one.first_timestamp for one in facts.topics if one.first_timestamp is not None]
    ends = [one.last_timestamp for one in facts.topics if one.last_timestamp is not None]
    yield duration_text(max(ends) - min(starts)) if starts else NOTHING, "from oldest to newest", ""
    lag = sum(group.lag or 0 for group in facts.groups)
    yield short_count(lag), f"records of lag, {len(facts.groups)} groups", ""
    opened = len(facts.open_transactions)
    yield str(opened), "open transactions", "warn" if opened else "good"
    if facts.errors is not None:
        kind = "bad" if facts.errors else "good"
        yield count_text(facts.errors), f"errors, {count_text(facts.notes)} notes", kind


def _sections(facts: Facts, specs: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """(id, title, content)"""
    yield "topics", "Topics", _chart(specs, "chart-topics") + _topic_table(facts.topics)
    if facts.span is not None:
        note = f"By the timestamps of the records, {time_text(facts.span.start)} to {time_text(facts.span.end)} UTC."
        if facts.outside:
            note += f" {count_text(facts.outside)} records lie far before or after that and are not drawn."
        note += " Rates are over the time in which something was written. Click on a topic to see it alone."
        content = f'<p class="note">{note}</p>'
        yield "rate", "Rate over time", content + _chart(specs, "chart-rate") + _chart(specs, "chart-records")
    if "chart-timeline" in specs:
        note = (
            '<p class="note">Each bar is a segment, from its first to its last timestamp; the largest partitions.</p>'
        )
        yield "segments", "Segments", note + _chart(specs, "chart-timeline")
    yield "partitions", "Gaps and retention", _partition_table(facts.partitions)
    if "chart-compression" in specs:
        note = '<p class="note">Of a few batches that were decompressed, spread over each topic.</p>'
        yield "compression", "Compression", note + _chart(specs, "chart-compression")
    yield "producers", "Producers", _chart(specs, "chart-producers") + _producer_table(facts)
    yield "transactions", "Open transactions", _transaction_table(facts)
    yield "lag", "Consumer lag", _lag(facts, specs)
    for index, keys in enumerate(facts.top_keys):
        yield f"keys-{index}", f"Keys of {keys.topic}", _top_keys(facts, index, specs)
    yield "findings", "Findings", _findings(facts)


def _chart(specs: Mapping[str, object], name: str) -> str:
    return f'<div class="chart" id="{name}"></div>' if name in specs else ""


def _nothing(what: str) -> str:
    return f'<p class="empty">{escape(what)}</p>'


def _topic_table(topics: Iterable[TopicFacts]) -> str:
    topics = list(topics)
    if not topics:
        return _nothing("There are no partitions here.")
    largest = max(topic.size for topic in topics)
    heads = (
        "topic", "size", "records", "partitions", "segments", "a record", "a batch", "codecs", "ratio",
        "oldest", "newest",
    )  # fmt: skip
    rows = [
        (
            text(topic.topic + (" (internal)" if topic.internal else "")),
            size(topic.size, largest),
            number(topic.records),
            number(topic.partitions),
            number(topic.segments),
            _per(topic.size, topic.records, "B"),
            _per(topic.records, topic.batches, "records"),
            text(", ".join(codec.codec or "unknown" for codec in topic.codecs) or None),
            _ratio(topic),
            time(topic.first_timestamp),
            time(topic.last_timestamp),
        )
        for topic in topics
    ]
    return html_table(heads, rows, "topics")


def _per(one: int, other: int, unit: str) -> Cell:
    return Cell(f"{rounded_text(one / other)} {unit}", one / other) if other else Cell(NOTHING, -1)


def _ratio(topic: TopicFacts) -> Cell:
    """Compression ratio of the whole topic, uncompressed batches included."""
    stored = sum(codec.size for codec in topic.codecs)
    if not stored or all(codec.ratio is None for codec in topic.codecs):
        return Cell(NOTHING, -1)
    ratio = sum(codec.size * (codec.ratio or 1) for codec in topic.codecs) / stored
    return Cell(f"{rounded_text(ratio)} ×", round(ratio, 3))


def _partition_table(partitions: Iterable[PartitionFacts]) -> str:
    partitions = list(partitions)
    if not partitions:
        return _nothing("There are no partitions here.")
    note = (
        '<p class="note">Missing: offsets between start and end without a record, as compaction and damage leave them. '
        "Longest pause: between two batches of the partition.</p>"
    )
    heads = (
        "partition", "size", "records", "start", "end", "LSO", "missing", "oldest", "newest", "covers",
        "longest pause", "damage",
    )  # fmt: skip
    largest = max(one.size for one in partitions)
    rows = [
        (
            text(f"{one.topic}-{one.partition}"),
            size(one.size, largest),
            number(one.records),
            number(one.log_start_offset),
            number(one.log_end_offset),
            number(one.last_stable_offset),
            number(one.missing),
            time(one.first_timestamp),
            time(one.last_timestamp),
            duration(
                None
                if one.first_timestamp is None or one.last_timestamp is None
                else one.last_timestamp - one.first_timestamp
            ),
            duration(one.longest_pause),
            mark(size_text(one.damaged_bytes), "bad") if one.damaged_bytes else text(None),
        )
        for one in partitions
    ]
    return note + html_table(heads, rows, "partitions")


def _producer_table(facts: Facts) -> str:
    if not facts.producers:
        return _nothing("There are no batches here.")
    largest = max(producer.size for producer in facts.producers)
    rows = [
        (
            text(producer_name(producer.producer_id, None)),
            text(producer.transactional_id),
            size(producer.size, largest),
            number(producer.records),
            number(producer.batches),
            number(producer.partitions),
            time(producer.last_timestamp),
        )
        for producer in facts.producers
    ]
    heads = ("producer id", "transactional id", "size", "records", "batches", "partitions", "last record")
    return html_table(heads, rows, "producers")


def _transaction_table(facts: Facts) -> str:
    if not facts.open_transactions:
        return _nothing("No transaction is open.")
    rows = [
        (
            text(f"{one.topic}-{one.partition}"),
            mark(one.state, "bad" if one.state == "hanging" else "warn"),
            text(producer_name(one.producer_id, one.transactional_id)),
            number(one.first_offset),
            number(one.records),
            time(one.started_at),
        )
        for one in facts.open_transactions
    ]
    note = '<p class="note">Consumers with read_committed stop before the first of them in each partition.</p>'
    return note + html_table(
        ("partition", "state", "producer", "first offset", "records", "since"), rows, "transactions"
    )


def _lag(facts: Facts, specs: Mapping[str, object]) -> str:
    if not facts.groups:
        return _nothing("There are no consumer groups in these directories.")
    groups = html_table(
        ("group", "kind", "members", "partitions", "lag"),
        [
            (
                text(group.group_id),
                text(group.kind),
                number(group.members),
                number(group.partitions),
                number(group.lag),
            )
            for group in facts.groups
        ],
        "groups",
    )
    offsets = html_table(
        ("group", "partition", "committed", "end", "lag", "committed at"),
        [
            (
                text(lag.group_id),
                text(f"{lag.topic}-{lag.partition}"),
                number(lag.offset),
                number(lag.log_end_offset),
                number(lag.lag),
                time(lag.committed_at),
            )
            for lag in facts.lags
        ],
        "committed offsets",
    )
    return _chart(specs, "chart-lag") + groups + offsets


def _top_keys(facts: Facts, index: int, specs: Mapping[str, object]) -> str:
    keys = facts.top_keys[index]
    unread = ""
    if keys.unread:
        more = len(keys.unread) - _SHOWN_UNREAD
        reasons = "; ".join([*keys.unread[:_SHOWN_UNREAD], *([f"and {more} more"] if more > 0 else [])])
        unread = f'<p class="note">Records that cannot be read are not counted: {escape(reasons)}</p>'
    if not keys.keys:
        return unread or _nothing("The topic has no records.")
    note = f"Of {count_text(keys.records)} records."
    if keys.missed:
        note += (
            f" There are more keys than are counted at once: each count may be too small by {count_text(keys.missed)}."
        )
    rows = [
        (
            text(bytes_text(key.key)),
            number(key.records),
            Cell(f"{key.records / keys.records:.2%}", key.records / keys.records),
            size(key.size),
        )
        for key in keys.keys
    ]
    table = html_table(("key", "records", "share", "bytes of values"), rows, "keys")
    return f'<p class="note">{note}</p>' + unread + _chart(specs, f"chart-keys-{index}") + table


def _findings(facts: Facts) -> str:
    if facts.errors is None:
        return _nothing("Not looked for (--no-check).")
    if not facts.findings:
        return _nothing("Every batch, index, snapshot and checkpoint is as a broker leaves it.")
    rows = [
        (
            mark(finding.severity, "bad" if finding.severity == "error" else "plain"),
            text(finding.topic_partition),
            text(finding.what),
            text(finding.path.rsplit("/", 1)[-1]),
            number(finding.position),
            number(finding.offset),
        )
        for finding in facts.findings
    ]
    more = facts.errors + (facts.notes or 0) - len(facts.findings)
    note = f'<p class="note">{count_text(more)} more: kafkalog-check tells all of them.</p>' if more > 0 else ""
    return html_table(("", "partition", "what", "file", "byte", "offset"), rows, "findings") + note
