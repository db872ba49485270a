"""meta.properties: what Kafka wrote, Java's properties format, and everything else."""

from __future__ import annotations

import contextlib
import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import CorruptFile, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    format_meta_properties,
    format_properties,
    parse_meta_properties,
    parse_properties,
    read_meta_properties,
    write_meta_properties,
)
from tests import golden_data
from tests.log.helpers.damaged_bytes import damaged

DATE = datetime.datetime(2024, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
GOLDEN_FILES = sorted(golden_data.GOLDEN.glob(f"*/*/{META_PROPERTIES_FILE}"))


def _date_in(data: bytes) -> datetime.datetime:
    text = data.decode().splitlines()[1].removeprefix("#")
    return datetime.datetime.strptime(text, "%a %b %d %H:%M:%S UTC %Y").replace(tzinfo=datetime.UTC)


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_meta_properties_round_trip_byte_for_byte(path, tmp_path):
    meta = read_meta_properties(path)
    assert meta is not None
    write_meta_properties(tmp_path / path.name, meta, _date_in(path.read_bytes()))
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_golden_files_have_the_expected_properties():
    assert read_meta_properties(golden_data.data_dir(golden_data.KAFKA_4_3) / META_PROPERTIES_FILE) == MetaProperties(
        1, "4L6g3nShT-eMCtK--X86sw", 1, "yfbXQNK6GDCzHhRKW71hDw"
    )
    assert read_meta_properties(golden_data.data_dir(golden_data.KAFKA_2_8) / META_PROPERTIES_FILE) == MetaProperties(
        0, "H3Qv29kyRae1J_DVwXaERw", 1
    )


def test_missing_file_is_none(tmp_path):
    assert read_meta_properties(tmp_path / META_PROPERTIES_FILE) is None


# Each expectation was compared with what java.util.Properties.load of Java 17 answers.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a=b", {"a": "b"}),
        (b"a = b ", {"a": "b "}),
        (b"a:b", {"a": "b"}),
        (b"a b", {"a": "b"}),
        (b"a", {"a": ""}),
        (b"a=", {"a": ""}),
        (b"=b", {"": "b"}),
        (b"a==b", {"a": "=b"}),
        (b"a : = b", {"a": "= b"}),
        (b"  \t\fa=b", {"a": "b"}),
        (b"#a=b\n!c=d\n  #e=f\ng=h", {"g": "h"}),
        (b"a=b\r\nc=d\re=f\n\n", {"a": "b", "c": "d", "e": "f"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"a\\:b\\=c\\ d=e", {"a:b=c d": "e"}),
        (b"a=\\t\\n\\r\\f\\\\\\q\\#", {"a": "\t\n\r\f\\q#"}),
        (b"a=\\u00e9\\u20AC\xe9", {"a": "\u00e9\u20ac\u00e9"}),
        (b"a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        (b"a=b\\\n   c", {"a": "bc"}),
        (b"a=b\\\n#c", {"a": "b#c"}),
        (b"a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (b"\\\n#c\nd=e", {"d": "e"}),
        (b"a=b\\", {"a": "b"}),
        (b"", {}),
    ],
)
def test_properties_are_read_as_in_java(data, expected):
    assert parse_properties(data) == expected


def test_properties_are_written_as_in_java():
    written = format_properties({"a b:c": " d e=f#g!\\", "\u00e9\n": "\U0001f600~\x7f\t"}, DATE)
    assert written == (
        b"#\n#Sat Feb 03 04:05:06 UTC 2024\n"
        b"a\\ b\\:c=\\ d e\\=f\\#g\\!\\\\\n"
        b"\\u00E9\\n=\\uD83D\\uDE00~\\u007F\\t\n"
    )  # fmt: skip


def test_date_is_written_in_utc():
    east = DATE.astimezone(datetime.timezone(datetime.timedelta(hours=9)))
    assert format_properties({}, east) == b"#\n#Sat Feb 03 04:05:06 UTC 2024\n"


@given(st.dictionaries(st.text(), st.text()))
def test_every_property_round_trips(properties):
    assert parse_properties(format_properties(properties, DATE)) == properties


def test_unknown_keys_are_kept():
    data = b"version=1\ncluster.id=c\nnode.id=3\nmine=x\\:y\n"
    meta = parse_meta_properties(data)
    assert meta == MetaProperties(1, "c", 3, None, {"mine": "x:y"})
    assert parse_meta_properties(format_meta_properties(meta, DATE)) == meta


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "no key 'version'"),
        (b"version=1\ncluster.id=c\n", "no key 'node.id'"),
        (b"version=1\nnode.id=1\n", "no key 'cluster.id'"),
        (b"version=one\n", "value of 'version' is 'one'"),
        (b"version=1\ncluster.id=c\nnode.id=2147483648\n", "value of 'node.id' is '2147483648'"),
        (b"version=0\nbroker.id=\n", "value of 'broker.id' is ''"),
        (b"#\nversion=\\u00zz\n", "line 2: .*four hexadecimal digits"),
    ],
)
def test_damaged_meta_properties_are_an_error(data, text, tmp_path):
    path = tmp_path / META_PROPERTIES_FILE
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=text) as caught:
        read_meta_properties(path)
    assert caught.value.path == str(path)


def test_unknown_version_is_an_error():
    with pytest.raises(UnsupportedFormat, match="version 2"):
        parse_meta_properties(b"version=2\n")


def test_directory_of_a_zookeeper_broker_needs_no_cluster_id():
    assert parse_meta_properties(b"version=0\nbroker.id=4\n") == MetaProperties(0, None, 4)


def test_any_damage_gives_properties_or_a_kafkalog_error():
    for path in GOLDEN_FILES:
        for _what, data in damaged(path.read_bytes()):
            with contextlib.suppress(KafkalogError):
                parse_meta_properties(data)


@given(st.binary(max_size=60) | st.text("ab=: \\u041#\n\r", max_size=30).map(str.encode))
def test_any_bytes_give_properties_or_a_kafkalog_error(data):
    with contextlib.suppress(CorruptFile):
        parse_properties(data)
