"""Options where.*: which records Spark is given."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.decode.scan_request import RecordPredicate
from kafkalog_spark.source.option_parsing import parse_read_options
from tests.golden_data import KAFKA_4_3, data_dir, golden_logs
from tests.source.helpers.driver import read


def wanted(**options: str) -> RecordPredicate:
    return parse_read_options({"path": "/logs", "subscribe": "t", **options}).wanted


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, RecordPredicate()),
        ({"where.key": "user-42"}, RecordPredicate(key=b"user-42")),
        ({"WHERE.KEY": "ü"}, RecordPredicate(key=b"\xc3\xbc")),
        ({"where.key": ""}, RecordPredicate(key=b"")),
        ({"where.key.hex": "00 ff2A"}, RecordPredicate(key=b"\x00\xff\x2a")),
        (
            {"where.key.prefix": "user-", "where.value.contains": "paid"},
            RecordPredicate(key_prefix=b"user-", value_contains=b"paid"),
        ),
        ({"where.header": "trace"}, RecordPredicate(header_name=b"trace")),
        ({"where.header": "trace="}, RecordPredicate(header_name=b"trace", header_value=b"")),
        ({"where.header": "a=b=c"}, RecordPredicate(header_name=b"a", header_value=b"b=c")),
    ],
)
def test_search_options_become_a_record_predicate(options: dict[str, str], expected: RecordPredicate) -> None:
    assert wanted(**options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"where.key.hex": "0x1f"},
            "option 'where.key.hex' must have two hexadecimal digits for each byte, such as 00ff2a",
        ),
        ({"where.key.hex": "abc"}, "option 'where.key.hex' must have two hexadecimal digits for each byte"),
        (
            {"where.key": "a", "where.key.hex": "61"},
            "options 'where.key' and 'where.key.hex' are both given; a",
        ),
        ({"where.value": "a"}, "unknown option 'where.value'; did you mean 'where.value.contains'?"),
        ({"where.headers": "a"}, "unknown option 'where.headers'; did you mean 'where.header'?"),
    ],
)
def test_unsupported_search_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        wanted(**options)
    assert str(caught.value).startswith(message)


def test_search_returns_the_matching_rows_of_the_full_read() -> None:
    logs = golden_logs(KAFKA_4_3, "segments", crashed=False)
    rows: list[dict[str, Any]] = [row for log in logs for row in log.records()]
    key = next(row["key"] for row in rows if row["key"])
    expected = sorted((row["partition"], row["offset"]) for row in rows if row["key"] == key)
    for option, text in (("where.key", key.decode()), ("where.key.hex", key.hex())):
        asked = {option: text, "columns": "partition,offset", "maxPartitionBytes": "4k"}
        found = read(data_dir(), subscribe="segments", **asked)
        assert sorted(zip(*(found[name].to_pylist() for name in ("partition", "offset")), strict=True)) == expected


def test_search_stays_within_its_range() -> None:
    logs = golden_logs(KAFKA_4_3, "segments", crashed=False)
    (row,) = [row for log in logs for row in log.records() if (row["partition"], row["offset"]) == (0, 601)]
    bounds = {
        f"{side}ingOffsets": f'{{"segments":{{"0":{at},"1":0,"2":0}}}}' for side, at in (("start", 601), ("end", 602))
    }
    for prefix, rows in ((row["key"].decode(), 1), ("nobody", 0)):
        assert read(data_dir(), subscribe="segments", **{"where.key.prefix": prefix}, **bounds).num_rows == rows


def log_bytes(topic: str) -> int:
    return sum(path.stat().st_size for path in data_dir().glob(f"{topic}-*/*.log"))


@pytest.mark.parametrize("table", ["records", "batches"])
def test_read_beyond_max_scan_bytes_is_refused_with_its_size(table: str) -> None:
    asked = {"subscribe": "segments", "table": table}
    size = log_bytes("segments")
    assert read(data_dir(), maxScanBytes=size, **asked).num_rows
    with pytest.raises(OptionError) as caught:
        read(data_dir(), maxScanBytes=size - 1, **asked)
    assert str(caught.value).startswith(f"the query would read {size} bytes of .log files (")
    assert f"maxScanBytes is {size - 1}; narrow the read with" in str(caught.value)
    end = '{"segments":{"0":1,"1":0,"2":0}}'
    assert read(data_dir(), maxScanBytes=size // 4, endingOffsets=end, **asked).num_rows
