"""The HTML page of a report. It contains all scripts and styles, so the browser sends no request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources

from kafkalog_spark.errors import in_utf8
from kafkalog_spark.report import words
from kafkalog_spark.report.charts import charts, producer_name
from kafkalog_spark.report.facts import Facts, PartitionTotal, ProducerTotal, Row, TopicFacts
from kafkalog_spark.report.html_table import (
    Cell,
    duration,
    empty_text,
    html_table,
    mark,
    moment,
    note_text,
    number,
    size,
    text,
    time,
)
from kafkalog_spark.report.key_counts import KeyCount

_SHOWN_UNREAD = 5  # unreadable parts of a topic that are listed; the findings have all


def page(facts: Facts, title: str = "Kafka log report") -> str:
    """Return the text of the file."""
    specs = charts(facts)
    sections = list(_sections(facts, specs))
    links = "".join(f'<a href="#{name}">{escape(head)}</a>' for name, head, _ in sections)
    body = "".join(
        f'<section id="{name}"><h2>{escape(head)}</h2>{content}</section>' for name, head, content in sections
    )
    # a script must contain neither </script nor <!--
    data = json.dumps(specs, separators=(",", ":")).replace("<", "\\u003c")
    return in_utf8(
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{_file('page.css')}</style></head><body>"
        f"{_header(facts, title)}<nav>{links}</nav><main>{body}</main>"
        f"<footer>Made by kafkalog-report at {words.time_text(facts.made_at)} UTC. All times are UTC.</footer>"
        f'<script type="application/json" id="charts">{data}</script>'
        f'<script type="module">{vega_bundle()}</script><script type="module">{_file("page.js")}</script>'
        "</body></html>\n"
    )


_ENDS_A_SCRIPT = re.compile(r"<(?=/script|!--)", re.IGNORECASE)
"""Texts that HTML interprets inside a script: the end tag, and the comment mark, after which the end tag may be hidden.
In the bundle they occur only inside of strings, which a backslash after the `<` does not change."""


@cache
def vega_bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script (0.9 MB), which defines `window.vegaEmbed`."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return _ENDS_A_SCRIPT.sub(r"<\\", bundle)


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
    yield words.size_text(sum(topic.size for topic in facts.topics)), "in .log files", ""
    yield words.short_count(sum(topic.records for topic in facts.topics)), "records", ""
    yield f"{len(facts.topics)} / {words.count_text(len(facts.partitions))}", "topics / partitions", ""
    starts = [topic.first_timestamp for topic in facts.topics if topic.first_timestamp is not None]
    ends = [topic.last_timestamp for topic in facts.topics if topic.last_timestamp is not None]
    yield words.duration_text(max(ends) - min(starts)) if starts else words.NOTHING, "from oldest to newest", ""
    lag = sum(group["lag"] or 0 for group in facts.groups)
    yield words.short_count(lag), f"records of lag, {len(facts.groups)} groups", ""
    opened = len(facts.open_transactions)
    yield str(opened), "open transactions", "warn" if opened else "good"
    if facts.errors is not None:
        kind = "bad" if facts.errors else "good"
        yield words.count_text(facts.errors), f"errors, {words.count_text(facts.notes)} notes", kind


def _sections(facts: Facts, specs: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    yield "topics", "Topics", _chart(specs, "chart-topics") + _topic_table(facts.topics)
    if facts.span is not None:
        first, end = words.time_text(facts.span.start), words.time_text(facts.span.end)
        note = f"By the timestamps of the records, {first} to {end} UTC."
        if facts.outside:
            note += f" {words.count_text(facts.outside)} records lie far before or after that and are not drawn."
        note += " Rates are over the time in which something was written. Click on a topic to see it alone."
        yield "rate", "Rate over time", note_text(note) + _chart(specs, "chart-rate") + _chart(specs, "chart-records")
    if "chart-timeline" in specs:
        note = note_text("Each bar is a segment, from its first to its last timestamp; the largest partitions.")
        yield "segments", "Segments", note + _chart(specs, "chart-timeline")
    yield "partitions", "Gaps and retention", _partition_table(facts.partitions)
    if "chart-compression" in specs:
        note = note_text("Measured on a few batches of each topic, evenly spread.")
        yield "compression", "Compression", note + _chart(specs, "chart-compression")
    yield "producers", "Producers", _chart(specs, "chart-producers") + _producer_table(facts)
    yield "transactions", "Open transactions", _transaction_table(facts)
    yield "lag", "Consumer lag", _lag(facts, specs)
    for index, keys in enumerate(facts.top_keys):
        yield f"keys-{index}", f"Keys of {keys.topic}", _top_keys(facts, index, specs)
    yield "findings", "Findings", _findings(facts)


def _chart(specs: Mapping[str, object], name: str) -> str:
    return f'<div class="chart" id="{name}"></div>' if name in specs else ""


_NO_PARTITIONS = "There are no partitions here."


def _topic_table(topics: Sequence[TopicFacts]) -> str:
    largest = max((topic.size for topic in topics), default=0)
    columns: dict[str, Callable[[TopicFacts], Cell]] = {
        "topic": lambda topic: text(topic.topic + (" (internal)" if topic.is_internal else "")),
        "size": lambda topic: size(topic.size, largest),
        "records": lambda topic: number(topic.records),
        "partitions": lambda topic: number(topic.partitions),
        "segments": lambda topic: number(topic.segments),
        "record size": lambda topic: _per(topic.size, topic.records, words.size_text),
        "records a batch": lambda topic: _per(topic.records, topic.batches, words.rounded_text),
        "codecs": lambda topic: text(", ".join(codec.codec or "unknown" for codec in topic.codecs) or None),
        "ratio": _ratio,
        "oldest": lambda topic: time(topic.first_timestamp),
        "newest": lambda topic: time(topic.last_timestamp),
    }
    return html_table(columns, topics, "topics", _NO_PARTITIONS)


def _per(total: int, count: int, written: Callable[[float], str]) -> Cell:
    return Cell(written(total / count), total / count) if count else Cell(words.NOTHING, -1)


def _ratio(topic: TopicFacts) -> Cell:
    """Compression ratio of the whole topic, uncompressed batches included."""
    stored = sum(codec.size for codec in topic.codecs)
    if not stored or all(codec.ratio is None for codec in topic.codecs):
        return Cell(words.NOTHING, -1)
    ratio = sum(codec.size * (codec.ratio or 1) for codec in topic.codecs) / stored
    return Cell(f"{words.rounded_text(ratio)} ×", round(ratio, 3))


def _partition_table(partitions: Sequence[PartitionTotal]) -> str:
    note = (
        "Missing: offsets between start and end without a record, as compaction and damage leave them. "
        "Longest pause: between two batches of the partition."
    )
    largest = max((partition.size for partition in partitions), default=0)
    columns: dict[str, Callable[[PartitionTotal], Cell]] = {
        "partition": lambda total: text(f"{total.topic}-{total.partition}"),
        "size": lambda total: size(total.size, largest),
        "records": lambda total: number(total.records),
        "start": lambda total: number(total.log_start_offset),
        "end": lambda total: number(total.log_end_offset),
        "LSO": lambda total: number(total.last_stable_offset),
        "missing": lambda total: number(total.missing),
        "oldest": lambda total: time(total.first_timestamp),
        "newest": lambda total: time(total.last_timestamp),
        "covers": lambda total: duration(_time_range(total)),
        "longest pause": lambda total: duration(total.longest_pause),
        "damage": lambda total: (
            mark(words.size_text(total.damaged_bytes), "bad") if total.damaged_bytes else text(None)
        ),
    }
    return html_table(columns, partitions, "partitions", _NO_PARTITIONS, note)


def _time_range(total: PartitionTotal) -> int | None:
    if total.first_timestamp is None or total.last_timestamp is None:
        return None
    return total.last_timestamp - total.first_timestamp


def _damage(total: PartitionTotal) -> Cell:
    return mark(words.size_text(total.damaged_bytes), "bad") if total.damaged_bytes else text(None)


def _partition(row: Row) -> Cell:
    return text(None if row["topic"] is None else f"{row['topic']}-{row['partition']}")


def _producer_table(facts: Facts) -> str:
    largest = max((producer.size for producer in facts.producers), default=0)
    columns: dict[str, Callable[[ProducerTotal], Cell]] = {
        "producer id": lambda producer: text(producer_name(producer.producer_id, None)),
        "transactional id": lambda producer: text(producer.transactional_id),
        "size": lambda producer: size(producer.size, largest),
        "records": lambda producer: number(producer.records),
        "batches": lambda producer: number(producer.batches),
        "partitions": lambda producer: number(producer.partitions),
        "last record": lambda producer: time(producer.last_timestamp),
    }
    return html_table(columns, facts.producers, "producers", "There are no batches here.")


def _transaction_table(facts: Facts) -> str:
    columns: dict[str, Callable[[Row], Cell]] = {
        "partition": _partition,
        "state": lambda row: mark(row["state"], "bad" if row["state"] == "hanging" else "warn"),
        "producer": lambda row: text(producer_name(row["producer_id"], row["transactional_id"])),
        "first offset": lambda row: number(row["first_offset"]),
        "records": lambda row: number(row["records"]),
        "since": lambda row: moment(row["started_at"]),
    }
    note = "Consumers with read_committed stop before the first of them in each partition."
    return html_table(columns, facts.open_transactions, "transactions", "No transaction is open.", note)


_GROUP_COLUMNS: dict[str, Callable[[Row], Cell]] = {
    "group": lambda row: text(row["group_id"]),
    "kind": lambda row: text(row["kind"]),
    "members": lambda row: number(row["member_count"]),
    "partitions": lambda row: number(row["committed_partitions"] or 0),
    "lag": lambda row: number(row["lag"]),
}
_LAG_COLUMNS: dict[str, Callable[[Row], Cell]] = {
    "group": lambda row: text(row["group_id"]),
    "partition": _partition,
    "committed": lambda row: number(row["offset"]),
    "end": lambda row: number(row["log_end_offset"]),
    "lag": lambda row: number(row["lag"]),
    "committed at": lambda row: moment(row["committed_at"]),
}


def _lag(facts: Facts, specs: Mapping[str, object]) -> str:
    if not facts.groups:
        return empty_text("There are no consumer groups in these directories.")
    groups = html_table(_GROUP_COLUMNS, facts.groups, "groups")
    return _chart(specs, "chart-lag") + groups + html_table(_LAG_COLUMNS, facts.lags, "committed offsets")


def _top_keys(facts: Facts, index: int, specs: Mapping[str, object]) -> str:
    keys = facts.top_keys[index]
    unread = ""
    if keys.unread:
        more = len(keys.unread) - _SHOWN_UNREAD
        reasons = "; ".join([*keys.unread[:_SHOWN_UNREAD], *([f"and {more} more"] if more > 0 else [])])
        unread = note_text(f"Records that cannot be read are not counted: {escape(reasons)}")
    if not keys.keys:
        return unread or empty_text("The topic has no records.")
    note = f"Of {words.count_text(keys.records)} records."
    if keys.missed:
        missed = words.count_text(keys.missed)
        note += f" There are too many different keys for exact counts: each count may be too small by {missed}."
    columns: dict[str, Callable[[KeyCount], Cell]] = {
        "key": lambda key: text(words.bytes_text(key.key)),
        "records": lambda key: number(key.records),
        "share": lambda key: Cell(f"{key.records / keys.records:.2%}", key.records / keys.records),
        "bytes of values": lambda key: size(key.size),
    }
    table = html_table(columns, keys.keys, "keys")
    return note_text(note) + unread + _chart(specs, f"chart-keys-{index}") + table


def _findings(facts: Facts) -> str:
    if facts.errors is None:
        return empty_text("Not checked (--no-check).")
    nothing = "Every batch, index, snapshot and checkpoint is valid."
    columns: dict[str, Callable[[Row], Cell]] = {
        "": lambda row: mark(row["severity"], "bad" if row["severity"] == "error" else "plain"),
        "partition": _partition,
        "what": lambda row: text(
            row["what"] if row["expected"] is None else f"{row['what']}: expected {row['expected']}, got {row['got']}"
        ),
        "file": lambda row: text(row["path"].rsplit("/", 1)[-1]),
        "byte": lambda row: number(row["position"]),
        "offset": lambda row: number(row["offset"]),
    }
    more = facts.errors + (facts.notes or 0) - len(facts.findings)
    note = note_text(f"{words.count_text(more)} more: kafkalog-check lists all of them." if more > 0 else "")
    return html_table(columns, facts.findings, "findings", nothing) + note
