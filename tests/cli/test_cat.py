"""kafkalog-cat against what kcat 1.7.1 printed of the same records, and against what a scan gives."""

from __future__ import annotations

import gzip
import io
import json
import shlex
import shutil
import subprocess
import sys
import unicodedata
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkalog_spark.cli import cat
from kafkalog_spark.cli.cat_options import CatOptions, Start, parse_bounds, parse_time_ms, record_predicate
from kafkalog_spark.cli.cat_reader import CatReader
from kafkalog_spark.cli.record_format import RecordFormat
from kafkalog_spark.cli.record_json import json_text
from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.exit_codes import BROKEN_PIPE, WRONG_USAGE
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    write_partition_metadata,
)
from kafkalog_spark.log.decode.scan_request import EVERY_RECORD, RecordPredicate, ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from tests.cli.kcat_outputs import EVERY_TOKEN, OUTPUTS, topic_and_arguments
from tests.log.helpers.batch_builder import V2Record, batch
from tests.log.helpers.damaged_log import TIME, write_segments
from tests.log.helpers.legacy_builder import LegacyRecord, message_set

HERE = Path(__file__).parent


class Printed:
    """What a run of the command printed."""

    def __init__(self, capsysbinary: Any) -> None:
        self._captured = capsysbinary
        self.code = 0
        self.err = ""

    def __call__(self, root: Path | str, *arguments: str) -> bytes:
        self.code = cat.main([str(root), *arguments])
        found = self._captured.readouterr()
        self.err = found.err.decode()
        out: bytes = found.out
        return out


@pytest.fixture
def printed(capsysbinary: pytest.CaptureFixture[bytes]) -> Printed:
    return Printed(capsysbinary)


@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_cat_output_equals_kcats(golden: Path, printed: Printed, name: str) -> None:
    """kcat cuts a header's value at a zero byte, and puts bytes that are not UTF-8 into JSON as they are."""
    said = gzip.decompress((HERE / "kcat-1.7.1" / f"{name}.gz").read_bytes())
    found = printed(golden, *topic_and_arguments(name), *OUTPUTS[name])
    assert printed.code == 0
    assert said
    if "json" in OUTPUTS[name]:
        lines = said.decode(errors="replace").splitlines()
        assert [json.loads(line) for line in found.decode().splitlines()] == list(map(json.loads, lines))
        assert [list(json.loads(line)) for line in found.splitlines()] == [list(json.loads(line)) for line in lines]
    else:
        assert found.replace(b"\x00\xff\x80", b"") == said


def test_search_options_of_a_read_are_arguments(golden: Path, printed: Printed) -> None:
    everything = [row for rows in LogDirs.open(golden).scan("headers", columns=("key", "value", "offset", "headers"))
                  for row in rows.to_pylist()]  # fmt: skip
    key = next(row["key"] for row in everything if row["key"])
    with_header = [row for row in everything if any(h["key"] == "source" for h in row["headers"] or ())]
    for arguments, keep in (
        (["--key", key.decode()], lambda row: row["key"] == key),
        (["--key-hex", key.hex()], lambda row: row["key"] == key),
        (["--key-prefix", "key-1"], lambda row: (row["key"] or b"").startswith(b"key-1")),
        (["--value-contains", "alpha"], lambda row: b"alpha" in (row["value"] or b"")),
        (["--header", "source"], lambda row: row in with_header),
        (
            ["--key-prefix", "key-1", "--header", "source"],
            lambda row: row in with_header and (row["key"] or b"").startswith(b"key-1"),
        ),
    ):  # fmt: skip
        wanted = [row["offset"] for row in everything if keep(row)]
        found = printed(golden, "-t", "headers", "-f", "%o\\n", *arguments)
        assert [int(line) for line in found.split()] == wanted
        assert 0 < len(wanted) < len(everything)


def test_timestamp_count_and_partition_arguments_narrow_the_output(golden: Path, printed: Printed) -> None:
    times = {
        row["offset"]: int(row["timestamp"].timestamp() * 1000)
        for rows in LogDirs.open(golden).scan("codec-none", columns=("offset", "timestamp"))
        for row in rows.to_pylist()
    }
    since, until = 1_700_001_100_000, 1_700_001_200_000
    wanted = [offset for offset, time in times.items() if since <= time < until]
    by_text = ["--from", "2023-11-14T22:31:40", "--to", "2023-11-14T23:33:20+01:00"]
    for bounds in (["--from", str(since), "--to", str(until)], by_text):
        found = printed(golden, "-t", "codec-none", "-f", "%o ", *bounds)
        assert [int(text) for text in found.split()] == wanted
    assert wanted
    two = printed(golden, "-t", "segments", "-t", "codec-none", "-p", "0", "-f", "%t %p\\n", "-c", "6002").split(b"\n")
    assert [two[0], two[5999], two[6000], two[6001], two[6002]] == [b"segments 0"] * 2 + [b"codec-none 0"] * 2 + [b""]
    assert printed(golden, "-t", "segments", "-c", "0") == b""
    assert printed(golden, "-t", "segments", "-p", "1", "-p", "2", "-o", "-1", "-f", "%p:%o ") == b"1:5999 2:5999 "


def test_damage_is_an_error_or_is_skipped_with_a_note(tmp_path: Path, printed: Printed) -> None:
    parts = [batch(at, [V2Record(at, TIME + at, None, b"value-%d" % at)]) for at in range(4)]
    bad = bytearray(parts[1])
    bad[-2] ^= 1
    root = write_segments(tmp_path, {0: parts[0] + bytes(bad) + parts[2], 3: parts[3]}).parent
    assert b"value-2" not in printed(root, "-t", "orders")
    assert printed.code == 1
    assert "orders-0" in printed.err
    assert "--past-damage" in printed.err
    assert printed(root, "-t", "orders", "--past-damage") == b"value-0\nvalue-2\nvalue-3\n"
    assert printed.code == 1
    assert "left out: orders-0" in printed.err
    assert f"at byte {len(parts[0])}" in printed.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-t", "nothing"], "topic nothing is not in"),
        (["-t", "segments", "-p", "9"], "segments has 0, 1, 2"),
        (["-t", "segments", "-o", "stored"], "-o takes beginning"),
        (["-t", "segments", "-o", "1", "-o", "2"], "-o is given twice"),
        (["-t", "segments", "-o", "e@1700000000000", "--follow"], "exclude each other"),
        (["-t", "segments", "--from", "yesterday"], "--from takes a time"),
        (["-t", "segments", "-f", "%q"], "no token '%q'"),
        (["-t", "segments", "-f", "%"], "no token '%'"),
        (["-t", "segments", "--key-hex", "1"], "--key-hex takes pairs"),
        (["-t", "segments", "--key", "a", "--key-hex", "61"], "both given"),
        (["-t", "segments", "-c", "-1"], "-c takes"),
        (["-t", "segments", "--option", "x"], "--option takes NAME=VALUE"),
    ],
)
def test_usage_error_names_the_correct_usage(golden: Path, printed: Printed, arguments: list[str], said: str) -> None:
    assert printed(golden, *arguments) == b""
    assert printed.code == 2
    assert printed.err.startswith("kafkalog-cat: ")
    assert said in printed.err


def test_path_without_a_log_directory_is_a_usage_error(tmp_path: Path, printed: Printed) -> None:
    assert printed(tmp_path / "nowhere", "-t", "orders") == b""
    assert (printed.code, "does not exist" in printed.err) == (2, True)


def test_unknown_token_is_refused_before_listing(tmp_path: Path, printed: Printed) -> None:
    assert printed(tmp_path / "nowhere", "-t", "orders", "-f", "%q") == b""
    assert (printed.code, "no token '%q'" in printed.err) == (2, True)


def test_offset_and_timestamp_arguments_are_parsed() -> None:
    assert parse_bounds([]) == (Start("beginning"), None)
    assert parse_bounds(["end"]) == (Start("end"), None)
    assert parse_bounds(["-10"]) == (Start("tail", 10), None)
    assert parse_bounds(["17", "e@1700000000000"]) == (Start("offset", 17), 1_700_000_000_000)
    assert parse_bounds(["s@2026-01-01"]) == (Start("timestamp", 1_767_225_600_000), None)
    assert parse_time_ms("2026-01-01T01:00:00.250+01:00", "--to") == 1_767_225_600_250
    with pytest.raises(OptionError, match="64 bits"):
        parse_bounds([str(2**64)])
    assert record_predicate(None, None, None, None, "a=b=c") == RecordPredicate(header_name=b"a", header_value=b"b=c")
    assert record_predicate(None, None, None, None, "a") == RecordPredicate(header_name=b"a")
    assert record_predicate(None, None, None, None, None) == EVERY_RECORD


def test_format_reads_only_its_columns() -> None:
    assert RecordFormat.of("%k%K").columns == ("key",)
    assert RecordFormat.of("x").columns == ("offset",)
    assert RecordFormat.of(EVERY_TOKEN).columns == (
        "topic", "partition", "offset", "key", "value", "timestamp", "headers",
    )  # fmt: skip
    rows = pa.record_batch({"offset": pa.array([1, 2, 3], pa.int64())})
    assert bytes(RecordFormat.of("a\\n").text_of(rows)) == b"a\n" * 3
    assert bytes(RecordFormat.of("").text_of(rows)) == b""
    assert bytes(RecordFormat.of("%o,").text_of(rows.slice(1, 1))) == b"2,"


def test_json_escapes_only_what_json_requires() -> None:
    texts = ["plain", "", 'quo"te', "back\\slash", "line\nbreak\x00\x1f\x7f", "käse ключ 🧀"]
    for chosen in (texts, texts[:2], texts[:4], [texts[5]], ['a\n\t\r\\n"\\"', "\b\f"], ['a\n\t\r\\n"\\"']):
        column = pa.array([None, *(text.encode() for text in chosen)], pa.binary())
        found = [json.loads(value) for value in json_text(column).to_pylist()]
        assert found == [None, *chosen]
    assert json.loads(json_text(pa.array([b"\xff"], pa.binary()))[0].as_py()) == "\ufffd"


def test_json_of_messages_without_a_timestamp_omits_it(tmp_path: Path, printed: Printed) -> None:
    data = message_set(0, [LegacyRecord(0, b"k", b"v")])
    root = write_segments(tmp_path, {0: data}).parent
    (line,) = printed(root, "-t", "orders", "-f", "json").splitlines()
    assert json.loads(line) == {
        "topic": "orders", "partition": 0, "offset": 0, "broker": -1, "key": "k", "payload": "v",
    }  # fmt: skip


@pytest.mark.local_only("it writes to its source")
def test_follow_prints_appended_records(tmp_path: Path) -> None:
    first = batch(0, [V2Record(at, TIME + at, None, b"v") for at in range(5)])
    root = write_segments(tmp_path, {0: first}).parent
    options = CatOptions(("orders",), (), *parse_bounds(["-2"]), ScanRequest(()), None, True)
    errors: list[KafkalogError] = []
    reader = CatReader(LogDirs.open(root), options, ("partition", "offset"), errors.append, lambda *_: None)
    steps = iter(range(4))

    def wait() -> bool:
        step = next(steps)
        if step == 0:
            with (root / "orders-0" / f"{0:020d}.log").open("ab") as log:
                log.write(batch(5, [V2Record(5, TIME, None, b"v"), V2Record(6, TIME, None, b"v")]))
        elif step == 1:
            (root / "orders-0" / f"{7:020d}.log").write_bytes(batch(7, [V2Record(7, TIME, None, b"v")]))
        elif step == 2:
            (root / "orders-1").mkdir()
            (root / "orders-1" / f"{0:020d}.log").write_bytes(batch(0, [V2Record(0, TIME, None, b"v")]))
        return step < 3

    def rows(batches: Iterator[pa.RecordBatch]) -> list[tuple[int, ...]]:
        return [tuple(row.values()) for found in batches for row in found.to_pylist()]

    assert rows(reader.records()) == [(0, 3), (0, 4)]
    assert rows(reader.follow((str(root),), {}, wait)) == [(0, 5), (0, 6), (0, 7), (1, 0)]
    assert errors == []


@pytest.mark.local_only("it writes to its source")
def test_follow_stops_at_its_count_and_reports_a_truncated_log(tmp_path: Path) -> None:
    def write(*batches: bytes) -> None:
        write_segments(tmp_path, {0: b"".join(batches)})

    one, two, three = (batch(at, [V2Record(at, TIME, None, b"v")]) for at in range(3))
    write(one, two)
    options = CatOptions(("orders",), (0,), *parse_bounds(["end"]), ScanRequest(()), 1, True)
    errors: list[KafkalogError] = []
    reader = CatReader(LogDirs.open(tmp_path), options, ("offset",), errors.append, lambda *_: None)
    assert list(reader.records()) == []
    steps = iter([lambda: write(one), lambda: None, lambda: write(one, two, three)])

    def wait() -> bool:
        next(steps)()
        return True

    found = [value for rows in reader.follow((str(tmp_path),), {}, wait) for value in rows.column(0).to_pylist()]
    assert found == [1]
    assert ["truncated to offset 1" in str(error) for error in errors] == [True]


def followed(
    root: Path, offset: str, *steps: Callable[[], object], count: int | None = None
) -> tuple[list[int], list[str]]:
    """(offsets, what was left out) of --follow; each step is made when there is nothing new."""
    options = CatOptions(("orders",), (), *parse_bounds([offset]), ScanRequest(()), count, True)
    errors: list[KafkalogError] = []
    reader = CatReader(LogDirs.open(root), options, ("offset",), errors.append, lambda *_: None)
    left = iter(steps)

    def wait() -> bool:
        step = next(left, None)
        if step is not None:
            step()
        return step is not None

    found = [*reader.records(), *reader.follow((str(root),), {}, wait)]
    return [value for rows in found for value in rows.column(0).to_pylist()], list(map(str, errors))


def single(*offsets: int) -> bytes:
    return b"".join(batch(at, [V2Record(at, TIME, None, b"v")]) for at in offsets)


@pytest.mark.local_only("it writes to its source")
def test_follow_waits_for_an_offset_that_is_not_written_yet(tmp_path: Path) -> None:
    def write(end: int) -> Callable[[], object]:
        return lambda: write_segments(tmp_path, {0: single(*range(end))})

    write(2)()
    assert followed(tmp_path, "5", write(4), lambda: None, write(7), write(8)) == ([5, 6, 7], [])
    write(2)()
    found, errors = followed(tmp_path, "5", write(1), write(7))
    assert found == [5, 6]  # none below the offset that was asked for
    assert ["truncated to offset 1; reading resumes at offset 5" in error for error in errors] == [True]
    write(2)()
    assert followed(tmp_path, "9", write(4)) == ([], [])


@pytest.mark.local_only("it writes to its source")
@pytest.mark.parametrize("with_ids", [True, False])
def test_follow_restarts_for_a_recreated_topic(tmp_path: Path, with_ids: bool) -> None:
    def write(topic_id: int, end: int) -> None:
        directory = write_segments(tmp_path, {0: single(*range(end))})
        if with_ids:
            write_partition_metadata(directory / PARTITION_METADATA_FILE, uuid.UUID(int=topic_id))

    def delete() -> None:
        shutil.rmtree(tmp_path / "orders-0")

    def recreate() -> None:
        delete()
        write(2, 4)

    (tmp_path / "other-0").mkdir()
    write(1, 3)
    assert followed(tmp_path, "end", delete, lambda: write(2, 5))[0] == [0, 1, 2, 3, 4]
    if with_ids:
        write(1, 3)
        found, errors = followed(tmp_path, "end", recreate, lambda: write(2, 5))
        assert found == [0, 1, 2, 3, 4]
        assert ["deleted and created again" in error for error in errors] == [True]
        moved = tmp_path / "moved"
        found, errors = followed(
            tmp_path, "end", lambda: (tmp_path / "orders-0").rename(moved),
            lambda: moved.rename(tmp_path / "orders-0"), lambda: write(2, 6),
        )  # fmt: skip
        assert (found, errors) == ([5], [])


def test_closed_pipe_ends_the_command_without_a_traceback(golden: Path) -> None:
    line = f"{sys.executable} -m kafkalog_spark.cli.cat {golden} -t segments | head -n 1"
    ran = subprocess.run(
        ["bash", "-c", f"{line}; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True, timeout=120, check=True
    )
    value, code = ran.stdout.splitlines()
    assert value.startswith("{")
    assert int(code) in (0, BROKEN_PIPE)  # 0: all of it was written before head ended
    assert ran.stderr == ""


def test_progress_bar_is_shown_only_on_an_otherwise_unused_terminal(
    golden: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    assert printed(golden, "-t", "segments")
    assert "offsets/s" in seen.getvalue()
    seen.truncate(0)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert printed(golden, "-t", "segments")
    assert "offsets/s" not in seen.getvalue()


def test_help_examples_run(golden: Path, printed: Printed) -> None:
    """Each example as it is printed, with a directory and a topic that there are."""
    assert "exit codes: 0" in cat.parser().format_help()
    for line, _ in cat._EXAMPLES:
        assert line in cat.parser().format_help()
        arguments = shlex.split(line)[2:]
        if "--follow" not in arguments:
            printed(golden, *("headers" if word == "orders" else word for word in arguments))
            assert printed.code == 0, printed.err


def test_defaults_equal_those_of_a_scan(golden: Path, printed: Printed) -> None:
    values = [value or b"" for rows in LogDirs.open(golden).scan("transactions", columns=("value",))
              for value in rows.column(0).to_pylist()]  # fmt: skip
    assert printed(golden, "-t", "transactions") == b"".join(value + b"\n" for value in values)
    committed = printed(golden, "-t", "transactions", "--isolation-level", "read_committed")
    assert len(committed.splitlines()) < len(values)


def test_time_of_fewer_than_six_digits_is_refused() -> None:
    with pytest.raises(OptionError):
        parse_time_ms("2026", "--from")


def test_json_escapes_control_characters_and_keeps_values() -> None:
    """Those that JSON allows as they are, DEL and C1, too: a terminal obeys them."""
    for values in (["a\u009b2J\x7f", "é\u00a0日"], ["\x1b", "\x80 b\u0085"], ["plain", "é"]):
        told = [line.decode() for line in json_text(pa.array([v.encode() for v in values], pa.binary())).to_pylist()]
        assert [json.loads(line) for line in told] == values
        assert not [one for line in told for one in line if unicodedata.category(one) == "Cc"]
    assert json_text(pa.array(["é".encode()], pa.binary())).to_pylist() == ['"é"'.encode()]


def test_control_characters_are_escaped_on_a_terminal_only(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    value = "a\x1b[2J\r\tb\u009bé\u3000".encode() + b"\xff"
    write_segments(tmp_path, {0: batch(0, [V2Record(0, TIME, b"\x07k", value)])})
    arguments = [str(tmp_path), "-t", "orders", "-f", r"%k %s\n"]
    assert cat.main(arguments) == 0
    assert capfdbinary.readouterr().out == b"\x07k " + value + b"\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cat.main(arguments) == 0
    assert capfdbinary.readouterr().out.decode() == "\\x07k a\\x1b[2J\\x0d\tb\\x9bé\u3000\\xff\n"


def test_time_in_seconds_is_noted(tmp_path: Path, printed: Printed) -> None:
    write_segments(tmp_path, {0: batch(0, [V2Record(0, TIME, None, b"value")])})
    for arguments, name in (
        (("--to", "1700000000"), "--to"),
        (("--from", "1700000000"), "--from"),
        (("-o", "s@1700000000"), "-o s@"),
        (("-o", "e@1700000000"), "-o e@"),
    ):
        printed(tmp_path, "-t", "orders", *arguments)
        assert printed.err == (f"kafkalog-cat: {name} is 1970-01-20: a number is in milliseconds, not in seconds\n")
    printed(tmp_path, "-t", "orders", "--to", "2026-01-01")
    assert printed.err == ""


def test_partition_with_compressed_segments_is_noted(tmp_path: Path, printed: Printed) -> None:
    directory = write_segments(tmp_path, {0: batch(0, [V2Record(0, TIME, None, b"value")])})
    (directory / "00000000000000000009.log.gz").touch()
    assert printed(tmp_path, "-t", "orders") == b"value\n"
    assert printed.err == (
        f"kafkalog-cat: records may be missing: {directory} holds 1 compressed segment (00000000000000000009.log.gz), "
        "not read: decompress first; the log begins at offset 0\n"
    )


def test_misspelt_topic_names_similar_ones(tmp_path: Path, printed: Printed) -> None:
    write_segments(tmp_path, {0: batch(0, [V2Record(0, TIME, None, b"value")])})
    assert printed(tmp_path, "-t", "order") == b""
    assert printed.code == WRONG_USAGE
    assert printed.err == (f"kafkalog-cat: topic order is not in {tmp_path}; did you mean orders? There are: orders\n")
