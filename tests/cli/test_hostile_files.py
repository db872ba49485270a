"""Log directories in which names stand for something else: a pipe, a socket, a device, a directory, a link, a sparse
file of terabytes. Every command ends, and says what it met."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog_spark.cli import cat, check, repair, report
from kafkalog_spark.errors import CorruptLog
from kafkalog_spark.format import layout, regular_file
from kafkalog_spark.format.names import segment_name
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.repair.repair_log_dir import repair_log_dirs
from kafkalog_spark.report.collect import collect
from kafkalog_spark.store import local_store
from tests.log.helpers.batch_builder import batch, sealed
from tests.log.helpers.damaged_log import AFTER, BEFORE, HONEST, NAME, records, write_segments
from tests.log.helpers.rows import plain_rows

pytestmark = pytest.mark.local_only("files of a local directory")

SNAPSHOT, INDEX, TIME_INDEX, ABORTED = (
    f"{NAME}/{segment_name(10)}{suffix}" for suffix in (".snapshot", ".index", ".timeindex", ".txnindex")
)
FIRST_LOG, LAST_LOG = (f"{NAME}/{segment_name(base)}.log" for base in (0, 10))
UNREADABLE = batch(15, records(15))
UNREADABLE = UNREADABLE[:61] + b"\xff" * (len(UNREADABLE) - 61)
FILES = (
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    f"{NAME}/leader-epoch-checkpoint",
    f"{NAME}/partition.metadata",
    SNAPSHOT,
    INDEX,
    TIME_INDEX,
    ABORTED,
    FIRST_LOG,
    LAST_LOG,
    "__cluster_metadata-0/00000000000000000000.log",
)


def _socket(path: Path) -> None:
    # bound by a short name: an address has 108 bytes at most
    at = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{at}/{path.name}")
    finally:
        os.close(at)


def _sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


def _many_lines(path: Path) -> None:
    path.write_bytes(b"0\n3000000\n" + b"1 1\n" * 3_000_000)


KINDS: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "socket": _socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "directory": os.mkdir,
    "link to nowhere": lambda path: path.symlink_to("nowhere"),
    "sparse": _sparse,
    "many lines": _many_lines,
}

COMMANDS: dict[str, Callable[[Path, Path], int]] = {
    "cat": lambda root, _: cat.main([str(root), "-t", "orders"]),
    "cat past damage": lambda root, _: cat.main([str(root), "-t", "orders", "--past-damage"]),
    "check": lambda root, _: check.main([str(root)]),
    "repair": lambda root, out: repair.main([str(root), "--to", str(out / "repaired")]),
    "report": lambda root, out: report.main([str(root), "-o", str(out / "page.html"), "--top-keys", "orders"]),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "logs"
    write_segments(root, {0: BEFORE + HONEST, 10: AFTER})
    (root / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    (root / "__cluster_metadata-0").mkdir()
    return root


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the sizes of files that are read as a whole."""
    read: list[int] = []

    def counted(path: str, most: int) -> bytes:
        data = read_whole(path, most)
        read.append(len(data))
        return data

    monkeypatch.setattr(layout, "MAX_SEGMENT_SIZE", 4 << 20)  # as much of a sparse segment is looked at
    read_whole = regular_file.read_whole
    monkeypatch.setattr(local_store, "read_whole", counted)
    return read


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_every_command_ends_on_hostile_files(
    name: str, kind: str, command: str, root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    bytes_read: list[int],
) -> None:  # fmt: skip
    path = root / name
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    code = COMMANDS[command](root, tmp_path)
    out, err = capfd.readouterr()
    assert code in (0, 1, 2)
    assert "Traceback" not in err
    assert "[(" not in err  # a list of Python in place of a sentence
    assert max(bytes_read, default=0) < 20 << 20  # nothing of the sparse files
    of_log = name in (FIRST_LOG, LAST_LOG)
    if of_log and command == "cat":
        assert code != 0
        assert path.name in err
    if command == "check" and kind in ("pipe", "socket", "device", "directory") and not name.startswith("__cluster"):
        assert code == 1
        assert any(str(path) in line and "not a regular file" in line for line in out.splitlines()), out
    if command == "repair" and of_log and kind != "link to nowhere":
        assert path.name in out
    if command == "repair" and name.startswith("__cluster") and kind != "many lines":
        assert f"{path} is not copied" in out
        assert not (tmp_path / "repaired" / name).exists()


def test_segment_larger_than_kafkas_maximum_is_refused(root: Path) -> None:
    path = root / LAST_LOG
    with open(path, "r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptLog, match=rf"the segment has {1 << 40} bytes; Kafka's segments have 2147483647 at most"):
        list(LogDirs.open(root).scan("orders"))


def test_directory_with_only_partition_like_names_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "build-12" / "src").mkdir(parents=True)
    (tmp_path / "notes.txt").touch()
    assert check.main([str(tmp_path)]) == 2
    assert "build-12 in it is named like a partition's directory" in capsys.readouterr().err
    (tmp_path / "build-12" / "partition.metadata").touch()
    assert check.main([str(tmp_path)]) == 1


def test_offset_past_the_end_is_reported(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cat.main([str(root), "-t", "orders", "-o", "15"]) == 0
    out, err = capfd.readouterr()
    assert (out, err) == (
        "", "kafkalog-cat: orders-0: nothing to read at offset 15: the log ends at offset 15\n"
    )  # fmt: skip
    assert cat.main([str(root), "-t", "orders", "-o", "14", "-f", "raw"]) == 0
    assert capfd.readouterr().err == ""


def test_links_leading_out_of_the_source_are_not_copied(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (root / "__cluster_metadata-0" / "quorum-state").write_text("{}")
    (root / "__cluster_metadata-0" / "secret").symlink_to(tmp_path / "secret")
    made = repair_log_dirs([root], tmp_path / "repaired")
    copied = tmp_path / "repaired" / "__cluster_metadata-0"
    assert [path.name for path in copied.iterdir()] == ["quorum-state"]
    assert f"{root / '__cluster_metadata-0' / 'secret'} is not copied: it is a link" in made.notes
    shutil.move(root / "__cluster_metadata-0", tmp_path / "outside")
    (root / "__cluster_metadata-0").symlink_to(tmp_path / "outside")
    made = repair_log_dirs([root], tmp_path / "again")
    assert not (tmp_path / "again" / "__cluster_metadata-0").exists()
    assert any("is not copied: it is not a directory, or a symbolic link" in note for note in made.notes)


def test_key_counts_skip_an_undecodable_batch(root: Path, tmp_path: Path) -> None:
    """Under a valid CRC, at the end of the log: nothing follows to go on with."""
    (root / LAST_LOG).write_bytes(AFTER + sealed(UNREADABLE))
    dirs = LogDirs.open(root)
    assert [row["offset"] for row in plain_rows(dirs.scan("orders", drop_malformed=True))] == list(range(15))
    (found,) = collect(dirs, 0, lambda *_: None, top_keys=("orders",)).top_keys
    assert found.records == 15
    assert len(found.unread) == 1
    assert LAST_LOG in found.unread[0]
    assert report.main([str(root), "-o", str(tmp_path / "page.html"), "--top-keys", "orders"]) == 0
    assert "Records that cannot be read are not counted" in (tmp_path / "page.html").read_text()


def test_names_that_are_not_utf8_are_escaped_in_reports_and_tables(root: Path, tmp_path: Path) -> None:
    """Names of a log directory, and of a directory in it."""
    (root / os.fsdecode(b"p\xff-0")).mkdir()
    named = tmp_path / os.fsdecode(b"logs\xff")
    root.rename(named)
    log = named / FIRST_LOG
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    assert report.main([str(named), "-o", str(tmp_path / "page.html")]) == 0
    assert r"logs\udcff" in (tmp_path / "page.html").read_text()
    dirs, shown = LogDirs.open(named), rf"{tmp_path}/logs\udcff"
    assert rf"{shown}/p\udcff-0" in dirs.table("findings").read_all()["path"].to_pylist()
    files = {*dirs.table("batches", columns=("file",)).read_all()["file"].to_pylist()}
    assert files == {f"{shown}/{FIRST_LOG}", f"{shown}/{LAST_LOG}"}
    rows = [row for batch in dirs.scan("orders", damage_rows=True) for row in batch.to_pylist()]
    assert {row["_file"] for row in rows} == {None, f"{shown}/{FIRST_LOG}"}
