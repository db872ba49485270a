"""Pages of kafkalog_spark/format: examples are what a real Kafka wrote, and our parsers read what their tables say."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from kafkalog_spark.format.batch_header import check_crc, parse_header
from kafkalog_spark.format.checkpoint import parse_leader_epochs, parse_offset_checkpoint
from kafkalog_spark.format.meta_properties import parse_meta_properties
from kafkalog_spark.format.names import DirKind, parse_partition_dir, parse_segment_file
from kafkalog_spark.format.offset_index import parse_offset_index
from kafkalog_spark.format.partition_metadata import parse_partition_metadata
from kafkalog_spark.format.producer_snapshot import parse_producer_snapshot
from kafkalog_spark.format.time_index import parse_time_index
from kafkalog_spark.format.transaction_index import parse_transaction_index
from tests.golden_data import GOLDEN

PAGES = Path(__file__).parents[2] / "kafkalog_spark" / "format"
_INTEGERS = {"int8": ">b", "int16": ">h", "int32": ">i", "uint32": ">I", "int64": ">q"}
_HEX = re.compile(r"```hex (?P<path>\S+) (?P<at>\d+)\n(?P<lines>.*?)```\n\n(?P<table>(?:\|[^\n]*\n)+)", re.DOTALL)
_TEXT = re.compile(r"```text (?P<path>\S+)\n(?P<text>.*?)```", re.DOTALL)

HEX_EXAMPLES = [
    pytest.param(found, id=f"{page.stem}-{number}")
    for page in sorted(PAGES.glob("*.md"))
    for number, found in enumerate(_HEX.finditer(page.read_text(encoding="utf-8")))
]
TEXT_EXAMPLES = [
    pytest.param(found, id=found["path"].rpartition("/")[2])
    for page in sorted(PAGES.glob("*.md"))
    for found in _TEXT.finditer(page.read_text(encoding="utf-8"))
]


def _varint(data: bytes, at: int) -> int:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return (value >> 1) ^ -(value & 1)
        at, shift = at + 1, shift + 7


def _rows(table: str) -> list[tuple[int, str, str, str]]:
    """(byte, type, field, value as printed) of each row."""
    cells = [[cell.strip() for cell in line[2:-2].split(" | ")] for line in table.splitlines()[2:]]
    return [(int(row[0]), row[1], row[2], row[3].strip("`")) for row in cells]


def _decoded(data: bytes, at: int, kind: str, printed: str) -> str:
    if kind == "varint":
        return str(_varint(data, at))
    if kind == "bytes":
        return f'"{data[at : at + len(printed) - 2].decode()}"'
    value = struct.unpack_from(_INTEGERS[kind], data, at)[0]
    return f"0x{value:08x}" if printed.startswith("0x") else str(value)


@pytest.mark.parametrize("example", HEX_EXAMPLES)
def test_hex_example_equals_kafkas_bytes_and_its_table(example: re.Match[str]) -> None:
    data, at = (GOLDEN / example["path"]).read_bytes(), int(example["at"])
    shown = bytes.fromhex("".join(line[10:] for line in example["lines"].splitlines()))
    assert shown == data[at : at + len(shown)]
    rows = _rows(example["table"])
    assert rows
    assert {name: _decoded(data, byte, kind, value) for byte, kind, name, value in rows} == {
        name: value for _, _, name, value in rows
    }
    beginnings = [byte for byte, *_ in rows]
    assert beginnings == sorted(set(beginnings)), "each field begins after the one before it"
    assert beginnings[-1] < at + len(shown)


@pytest.mark.parametrize("example", TEXT_EXAMPLES)
def test_text_example_equals_kafkas_file(example: re.Match[str]) -> None:
    assert example["text"].strip() == (GOLDEN / example["path"]).read_text(encoding="utf-8").strip()


def _of(page: str, number: int = 0) -> tuple[bytes, dict[str, str]]:
    """The whole file of a page's example and the first value printed for each field."""
    example = list(_HEX.finditer((PAGES / page).read_text(encoding="utf-8")))[number]
    values: dict[str, str] = {}
    for _, _, name, value in _rows(example["table"]):
        values.setdefault(name, value)
    return (GOLDEN / example["path"]).read_bytes(), values


def test_batch_example_is_parsed() -> None:
    data, shown = _of("record-batch.md")
    header = parse_header(data, 0, 0)
    check_crc(header, data[: header.size])
    assert header.size == int(shown["batchLength"]) + 12
    assert (header.record_count, header.max_timestamp) == (int(shown["recordCount"]), int(shown["maxTimestamp"]))
    assert header.last_offset == int(shown["baseOffset"]) + int(shown["lastOffsetDelta"])


@pytest.mark.parametrize("number", [0, 1], ids=["magic 1", "magic 0"])
def test_message_examples_are_parsed(number: int) -> None:
    data, shown = _of("message-set.md", number)
    header = parse_header(data, 0, 0)
    check_crc(header, data[: header.size])
    assert (header.magic, header.size) == (int(shown["magic"]), int(shown["messageSize"]) + 12)


def test_index_examples_are_parsed() -> None:
    data, shown = _of("offset-index.md")
    first = parse_offset_index(data, 600)
    assert (first.offsets[0], first.positions[0]) == (600 + int(shown["relativeOffset"]), int(shown["position"]))
    data, shown = _of("time-index.md")
    times = parse_time_index(data, 600)
    assert (times.timestamps[0], times.offsets[0]) == (int(shown["timestamp"]), 600 + int(shown["relativeOffset"]))
    data, shown = _of("transaction-index.md")
    aborted = parse_transaction_index(data)[0]
    assert tuple(aborted) == tuple(int(shown[name]) for name in
                                   ("producerId", "firstOffset", "lastOffset", "lastStableOffset"))  # fmt: skip
    data, shown = _of("producer-snapshot.md")
    entries = parse_producer_snapshot(data)
    assert len(entries) == int(shown["count"])
    names = ("producerId", "producerEpoch", "lastSequence", "lastOffset", "offsetDelta", "timestamp",
             "coordinatorEpoch", "currentTxnFirstOffset")  # fmt: skip
    assert tuple(entries[0]) == tuple(int(shown[name]) for name in names)


def test_text_file_examples_are_parsed() -> None:
    parsers = {
        "cleaner-offset-checkpoint": parse_offset_checkpoint,
        "leader-epoch-checkpoint": parse_leader_epochs,
        "partition.metadata": parse_partition_metadata,
        "meta.properties": parse_meta_properties,
    }
    read = {}
    for found in _TEXT.finditer((PAGES / "text-files.md").read_text(encoding="utf-8")):
        name = found["path"].rpartition("/")[2]
        read[name] = parsers[name](found["text"].encode())  # type: ignore[operator]
    assert read.keys() == parsers.keys()
    assert all(read.values())


def test_name_examples_are_parsed() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", (PAGES / "names.md").read_text(encoding="utf-8"), re.MULTILINE)
    kinds = {kind.name for kind in DirKind}
    directories = [(name, text.rpartition(": ")[2]) for name, text in rows if text.rpartition(": ")[2] in kinds]
    files = [name for name, text in rows if text.rpartition(": ")[2] not in kinds]
    assert (len(directories), len(files)) == (5, 8)
    for name, kind in directories:
        parsed = parse_partition_dir(name)
        assert parsed is not None
        assert parsed.kind.name == kind
    assert {getattr(parse_segment_file(name), "base_offset", None) for name in files} == {600}


def test_table_of_contents_lists_every_page() -> None:
    listed = set(re.findall(r"\]\((\S+\.md)\)", (PAGES / "README.md").read_text(encoding="utf-8")))
    assert listed == {page.name for page in PAGES.glob("*.md")} - {"README.md"}
