"""Tables of docs/figures.md, generated from benchmarks/results by `python -m benchmarks.figures` and after each run.

A row of a table shows figures of the newest result of each of its measurements.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "figures.md"
_FIGURE = re.compile(r"(\w+) \**(-?[\d.]+)\**(?:, |$)")


class Line(NamedTuple):
    """Row of a table.

    Attributes:
        what: First cell.
        sources: Measurements as (benchmark, name of the measurement).
        ours: Format string of the second cell; `{0.name}` is a figure of the first source.
        against: Format string of the third cell.
    """

    what: str
    sources: tuple[tuple[str, str], ...]
    ours: str
    against: str


def _each(benchmark: str, *measured: str) -> tuple[tuple[str, str], ...]:
    return tuple((benchmark, what) for what in measured)


LINES = (
    Line(
        "full read, 4 M x 100 B: none / lz4 / zstd",
        _each("spark_read", *(f"{codec}, 4 M x 100 B, default settings" for codec in ("none", "lz4", "zstd"))),
        "{0.kafkalog_M_rows_per_s:.1f} / {1.kafkalog_M_rows_per_s:.1f} / {2.kafkalog_M_rows_per_s:.1f} M rows/s",
        '{0.x_kafka:.1f} / {1.x_kafka:.1f} / {2.x_kafka:.1f} times `format("kafka")`; {0.x_ceiling:.0%} / '
        "{1.x_ceiling:.0%} / {2.x_ceiling:.0%} of what any Python source can hand to Spark",
    ),
    Line(
        "only offset and timestamp: default / Unix domain sockets",
        _each(
            "spark_read",
            "none, 4 M x 100 B, default settings, only offset and timestamp",
            "none, 4 M x 100 B, Unix domain sockets, only offset and timestamp",
        ),
        "{0.kafkalog_M_rows_per_s:.1f} / {1.kafkalog_M_rows_per_s:.1f} M rows/s",
        '{0.x_kafka:.1f} / {1.x_kafka:.1f} times `format("kafka")`',
    ),
    Line(
        "full read from S3 on the same machine: none / lz4",
        _each("object_store", "none, 4 M x 100 B from S3", "lz4, 4 M x 100 B from S3"),
        "{0.M_rows_per_s:.1f} / {1.M_rows_per_s:.1f} M rows/s",
        '{0.x_kafka:.1f} / {1.x_kafka:.1f} times `format("kafka")`; {0.x_local:.0%} / {1.x_local:.0%} of the local '
        "directory; {0.worker_peak_MB:.0f} MB a worker",
    ),
    Line(
        "tiered by Aiven's plugin, on S3: zstd / zstd and encrypted",
        _each("object_store", "Aiven, zstd, 4 M x 100 B from S3", "Aiven, zstd_encrypted, 4 M x 100 B from S3"),
        "{0.M_rows_per_s:.1f} / {1.M_rows_per_s:.1f} M rows/s",
        "{0.x_local:.0%} / {1.x_local:.0%} of the local directory; {0.worker_peak_MB:.0f} / {1.worker_peak_MB:.0f} MB "
        "a worker",
    ),
    Line(
        "last 1 % of 2 GB by `startingTimestamp`: disk / S3",
        (
            ("selective", "last 1 % of 2.00 GB of 100 B by startingTimestamp"),
            ("object_store", "last 1 % of 2.02 GB by startingTimestamp"),
        ),
        "{0.seconds:.2f} / {1.seconds:.2f} s",
        "{0.x_full_scan:.0f} times as fast as reading all, {0.x_kafka:.0f} times as the connector; from S3 "
        "{1.bytes_percent:.1f} % of the bytes, {1.requests_a_partition:.0f} requests a partition",
    ),
    Line(
        "JSON values decoded, 2 M x 150 B: 5 / 2 of 7 fields",
        _each("typed", *(f"JSON, 2 M x 150 B, {fields} of 7 fields, default settings" for fields in (5, 2))),
        "{0.typed_M_rows_per_s:.1f} / {1.typed_M_rows_per_s:.1f} M rows/s",
        "{0.x_from_json:.1f} / {1.x_from_json:.1f} times kafkalog and `from_json`, {0.x_kafka:.1f} / {1.x_kafka:.1f} "
        'times `format("kafka")` and `from_json`',
    ),
    Line(
        "Avro values decoded, 2 M x 60 B: 7 / 2 of 7 fields",
        _each("typed", *(f"Avro, 2 M x 60 B, {fields} of 7 fields, default settings" for fields in (7, 2))),
        "{0.typed_M_rows_per_s:.1f} / {1.typed_M_rows_per_s:.1f} M rows/s",
        '{0.x_kafka:.1f} / {1.x_kafka:.1f} times `format("kafka")` and `from_avro`',
    ),
    Line(
        "a query of 40 records",
        _each("tiny_query", "collect() of 40 records in 4 partitions"),
        "{0.kafkalog_seconds:.2f} s",
        "{0.x_time_of_nothing:.2f} times as long as a Python source that does nothing; the connector "
        "{0.kafka_seconds:.1f} s",
    ),
    Line(
        "`count()` of 1,000 partitions of 14 records",
        _each("many_partitions", "count of 1000 partitions of 14 records, beside the connector"),
        "{0.kafkalog_seconds:.2f} s",
        "the connector {0.kafka_seconds:.0f} s",
    ),
    Line(
        "decoding alone, one core, 100 B: none / lz4 / zstd",
        _each("decode", "none, 100 B", "lz4, 100 B", "zstd, 100 B"),
        "{0.M_records_per_s:.0f} / {1.M_records_per_s:.0f} / {2.M_records_per_s:.0f} M records/s",
        "",
    ),
    Line(
        "stream: a backlog of 4 M x 100 B in batches of 1 M",
        _each("streaming", "AvailableNow, 4 M x 100 B, maxOffsetsPerTrigger 1000000, default settings"),
        "{0.kafkalog_s:.1f} s",
        '{0.x_kafka:.1f} times `format("kafka")`; {0.x_ceiling:.0%} of a Python source with its rows in memory',
    ),
    Line(
        "stream: latency at 20 records/s, trigger 0 s",
        _each("streaming", "latency at 20 records/s, trigger 0 s"),
        "p50 {0.kafkalog_p50_ms:.0f} ms, p99 {0.kafkalog_p99_ms:.0f} ms",
        "the connector {0.kafka_p50_ms:.0f} and {0.kafka_p99_ms:.0f} ms; a Python source that does nothing "
        "{0.nothing_p50_ms:.0f} and {0.nothing_p99_ms:.0f} ms",
    ),
    Line(
        "write, 4 M x 100 B: none / lz4",
        _each("spark_write", "none, 4 M x 100 B", "lz4, 4 M x 100 B"),
        "{0.kafkalog_M_rows_per_s:.1f} / {1.kafkalog_M_rows_per_s:.1f} M rows/s",
        "{0.x_kafka:.1f} / {1.x_kafka:.1f} times Spark's Kafka sink; {0.x_counting:.0%} / {1.x_counting:.0%} of a "
        "Python sink that only counts",
    ),
    Line(
        "kafkalog-mirror, 1 kB records: none / lz4",
        _each(
            "mirror",
            "1000 B, none, 1010 MB, 4 partitions, against a consumer that counts",
            "1000 B, lz4, 513 MB, 4 partitions, against a consumer that counts",
        ),
        "{0.mirror_MB_per_s:.0f} / {1.mirror_MB_per_s:.0f} MB/s",
        "{0.x_of_consumer_median:.1f} / {1.x_of_consumer_median:.1f} times a librdkafka consumer that only counts",
    ),
    Line(
        "consumer group of KIP-848, 100 members over 1,000 partitions: all join / one more / one leaves",
        _each("groups", *(f"100 members, 1000 partitions: {step}" for step in ("join", "one more", "one leaves"))),
        "{0.kafkalog_ms:.0f} / {1.kafkalog_ms:.0f} / {2.kafkalog_ms:.0f} ms",
        "{0.x_kafka:.1f} / {1.x_kafka:.1f} / {2.x_kafka:.1f} times as fast as Apache Kafka, assignment interval 0",
    ),
    Line(
        "streams group of KIP-1071, 100 members over 500 tasks: all join / one more / one leaves",
        _each("groups", *(f"100 members, 500 tasks: {step}" for step in ("join", "one more", "one leaves"))),
        "{0.kafkalog_ms:.0f} / {1.kafkalog_ms:.0f} / {2.kafkalog_ms:.0f} ms",
        "{0.x_kafka:.1f} / {1.x_kafka:.1f} / {2.x_kafka:.1f} times as fast as Apache Kafka, assignment interval 0",
    ),
    Line(
        "tiered storage in a folder: segments copied / read back",
        _each("tiered_server", "segments of 16 MB, records of 1 kB, a folder as the store"),
        "{0.copying_MB_per_s:.0f} / {0.remote_read_MB_per_s:.0f} MB/s",
        "producers meanwhile {0.x_produce_while_copying:.2f} times as fast as alone / {0.x_remote_of_local_read:.0%} "
        "of a read from disk",
    ),
    Line(
        "first row of JSON after the start of Python: wheel of the platform / plain wheel, nothing compiled",
        _each("first_minute", "platform's wheel, json", "plain wheel, empty cache, json"),
        "{0.first_row_s:.1f} / {1.first_row_s:.1f} s",
        "{0.more_s:.1f} / {1.more_s:.1f} s more than a Python source with one row",
    ),
    Line(
        "`make demo` on a fresh machine: first rows / end",
        _each("first_minute", "make demo"),
        "{0.first_rows_s:.0f} / {0.end_s:.0f} s",
        "packages come from a cache of the index",
    ),
)


_TIMES_KAFKA = "{0.x_apache_kafka:.2f} / {1.x_apache_kafka:.2f} times Apache Kafka"
_RATES = {
    100: "{0.kafkalog_k_records_per_s:,.0f} / {1.kafkalog_k_records_per_s:,.0f} k records/s",
    1000: "{0.kafkalog_MB_per_s:,.0f} / {1.kafkalog_MB_per_s:,.0f} MB/s",
}
BROKER_LINES = (
    *(
        Line(
            f"{what}, {size} B, {codec}: 1 / 4 clients",
            _each("broker", *(f"{what}, {clients}, {size} B, {codec}" for clients in ("1 client", "4 clients"))),
            _RATES[size],
            _TIMES_KAFKA,
        )
        for what in ("produce", "fetch")
        for size in _RATES
        for codec in ("none", "lz4")
    ),
    *(
        Line(
            f"{what}, 1000 B, none, SASL_SSL: 1 / 4 clients",
            _each("security", *(f"SASL_SSL, {what}, {clients} clients, 1000 B" for clients in (1, 4))),
            _RATES[1000],
            _TIMES_KAFKA,
        )
        for what in ("produce", "fetch")
    ),
    Line(
        "one-record requests: 1 / 4 producers",
        _each("broker", "one-record requests, 1 producer", "one-record requests, 4 producers"),
        "{0.kafkalog_k_requests_per_s:.0f} / {1.kafkalog_k_requests_per_s:.0f} k requests/s",
        _TIMES_KAFKA,
    ),
    Line(
        "round trip, linger 0: p50 / p99",
        _each("broker", "produce-to-consume round trip, linger 0"),
        "{0.kafkalog_p50_ms:.2f} / {0.kafkalog_p99_ms:.2f} ms",
        "{0.x_time_of_apache_kafka_p50:.2f} / {0.x_time_of_apache_kafka_p99:.2f} times its time",
    ),
    Line(
        "resident memory after the load",
        _each("broker", "resident memory, after the load"),
        "{0.kafkalog_MB:.0f} MB",
        "Kafka {0.kafka_MB:.0f} MB",
    ),
    Line(
        "Java's share consumers, 100 B: 1 / 4 members",
        _each("share", *(f"100 B values, 4 partitions, {members} members" for members in (1, 4))),
        "{0.kafkalog_records_s:,.0f} / {1.kafkalog_records_s:,.0f} records/s",
        "{0.x_kafka:.1f} / {1.x_kafka:.1f} times Apache Kafka",
    ),
)
TABLES = {"figures": LINES, "broker": BROKER_LINES}
"""Rows of each table by its marker in the page."""


def newest_results() -> dict[tuple[str, str], SimpleNamespace]:
    """Return the figures of the last run of each measurement, by (benchmark, name of the measurement)."""
    newest = {}
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.md")):
        for benchmark, what, text in re.findall(
            r"^\| (\w+) \| (.+?) \| (.+) \|$", path.read_text("utf-8"), re.MULTILINE
        ):
            newest[benchmark, what] = SimpleNamespace(**{name: float(value) for name, value in _FIGURE.findall(text)})
    return newest


def page() -> str:
    """Return the text of docs/figures.md with the newest figures. Raises KeyError if a measurement has no result."""
    results, text = newest_results(), PAGE.read_text(encoding="utf-8")
    for marker, lines in TABLES.items():
        rows = ["| what | kafkalog | against |", "|---|---|---|"]
        for line in lines:
            figures = [results[source] for source in line.sources]
            rows.append(f"| {line.what} | {line.ours.format(*figures)} | {line.against.format(*figures)} |")
        begin, end = f"<!-- {marker} -->\n", f"<!-- {marker} end -->"
        before, _, rest = text.partition(begin)
        text = before + begin + "\n".join(rows) + "\n" + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
