"""Exit codes, error output and help of commands."""

from __future__ import annotations

import argparse
import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog_spark.cli import cat, check, repair, report
from kafkalog_spark.cli.command import command
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.exit_codes import BROKEN_PIPE, INTERRUPTED
from tests.log.helpers.batch_builder import V2Record, batch
from tests.log.helpers.damaged_log import TIME, write_segments


@pytest.mark.parametrize("parser", [cat.parser, check.parser, repair.parser, report.parser])
def test_help_has_examples_and_exit_codes(parser: Callable[[], argparse.ArgumentParser]) -> None:
    made = parser()
    text = made.format_help()
    assert f"\nexamples:\n  {made.prog} " in text
    assert "\nexit codes: 0 " in text


@pytest.mark.parametrize("main", [cat.main, check.main, repair.main, report.main])
def test_help_exits_with_0_and_a_usage_error_with_2(
    main: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, code in ((["--help"], 0), (["--nonsense"], 2)):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == code
    assert "usage: kafkalog-" in capsys.readouterr().out


def test_full_disk_under_stdout_is_reported_in_one_line(tmp_path: Path) -> None:
    write_segments(tmp_path, {0: batch(0, [V2Record(0, TIME, None, b"v")])})
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "kafkalog_spark.cli.cat", str(tmp_path), "-t", "orders"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (1, "kafkalog-cat: stdout cannot be written: No space left on device\n")


@pytest.mark.parametrize("module", ["kafkalog_spark.cli.cat", "kafkalog_broker", "kafkalog_broker.mirror"])
def test_help_that_cannot_be_written_exits_with_an_error(module: str) -> None:
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", module, "--help"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert ran.returncode == 1
    assert re.fullmatch(r"kafkalog-\w+: stdout cannot be written: No space left on device\n", ran.stderr)


def test_repair_option_that_is_no_storage_option_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_segments(tmp_path / "old", {0: batch(0, [V2Record(0, TIME, None, b"v")])})
    arguments = [str(tmp_path / "old"), "--to", str(tmp_path / "new"), "--option"]
    assert repair.main([*arguments, "no.such=1"]) == 2
    assert "got 'no.such'" in capsys.readouterr().err
    assert repair.main([*arguments, "fs.s3a.endpoint=http://127.0.0.1:1"]) == 0


def test_other_os_errors_are_not_reported_as_errors_of_stdout() -> None:
    @command("kafkalog-test")
    def main(argv: object = None) -> int:
        raise PermissionError(errno.EACCES, "no", "file")

    with pytest.raises(PermissionError):
        main([])


def test_control_characters_in_file_names_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ESC, a C1 control character, a byte that is not UTF-8: in the name of a log directory, and of a file in it."""
    name = os.fsdecode("lo\x1b[31m\u009b2J".encode() + b"\xff")
    broken = batch(0, [V2Record(0, TIME, None, b"v" * 20)])
    broken = broken[:-1] + b"!" + batch(1, [V2Record(1, TIME, None, b"v")])
    write_segments(tmp_path / name, {0: broken})
    logs = str(tmp_path / name)
    shown = r"lo\x1b[31m\x9b2J\udcff/orders-0"
    for main, arguments in (
        (check.main, [logs]),
        (check.main, ["--json", logs]),
        (check.main, ["--estimate", logs]),
        (cat.main, [logs, "-t", "orders"]),
        (repair.main, [logs, "--to", str(tmp_path / "to")]),
        (check.main, [str(tmp_path / "no\x1bwhere")]),
    ):
        main(arguments)
        found = capsys.readouterr()
        said = found.out + found.err
        assert said
        assert not [one for one in said if one != "\n" and not one.isprintable()], arguments
        if main is cat.main or arguments == [logs]:
            assert shown in said
    assert str(KafkalogError("two\nlines\u2028 and\ttabs")) == "two lines and tabs"
    assert str(KafkalogError("käse 日本")) == "käse 日本"


def test_closed_pipe_and_ctrl_c_end_commands_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended_by(error: type[BaseException]) -> int:
        @command("kafkalog-test")
        def main(argv: object = None) -> int:
            raise error

        return main([])

    class NoFile:
        def flush(self) -> None:
            pass

        def fileno(self) -> int:
            raise ValueError("no file")

    assert ended_by(KeyboardInterrupt) == INTERRUPTED
    assert capsys.readouterr().err == "kafkalog-test: interrupted\n"
    monkeypatch.setattr(sys, "stdout", NoFile())
    assert ended_by(BrokenPipeError) == BROKEN_PIPE
