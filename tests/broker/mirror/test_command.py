"""The command line of kafkalog-mirror: its options, errors and progress lines."""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkalog_broker.mirror import command
from kafkalog_broker.mirror.__main__ import parser
from kafkalog_broker.mirror.byte_count import parse_bytes
from kafkalog_broker.mirror.mirror_options import command_options
from kafkalog_broker.mirror.progress import Progress, summary
from kafkalog_spark.exit_codes import WRONG_USAGE

ROOT = Path(__file__).parents[3]
GIVEN = ("--bootstrap", "127.0.0.1:1", "--log-dir", "mirror", "--topics", "orders")


def parsed(*arguments):
    return command_options(parser().parse_args([*GIVEN, *arguments]))


def test_options_are_parsed():
    made = parsed("--once", "--internal", "--max-bytes-per-second", "50M", "-X", "client.id=me")
    assert (made.once, made.internal, made.max_bytes_per_second) == (True, True, 50_000_000)
    assert made.settings.client_id == "me"
    assert made.topics.fullmatch("orders")


def test_password_is_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("SECRET", "x=y")
    texts = ["security.protocol=sasl_plaintext", "sasl.username=u", "sasl.password=env:SECRET"]
    assert parsed(*(part for text in texts for part in ("-X", text))).settings.sasl_password == "x=y"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-X", "sasl.password=env:NOBODY_SET_THIS"), "the environment variable NOBODY_SET_THIS is not set"),
        (("-X", "group.id=g"), "unsupported property"),
        (("--topics", "("), "is not a regular expression"),
        (("--bootstrap", "x:y"), "expected HOST:PORT"),
    ],
)
def test_invalid_option_is_reported_and_no_file_is_created(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command.main(parser().parse_args([*GIVEN, *arguments])) == WRONG_USAGE
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["0", "-1", "5x", "M"])
def test_invalid_rate_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected a number of bytes"):
        parse_bytes(text)


def test_installed_command_prints_help_with_examples():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kafkalog-mirror"] == "kafkalog_broker.mirror.__main__:main"
    told = parser().format_help()
    assert told.count("kafkalog-mirror --bootstrap") == 3
    assert "docs/mirror.md" in told


def test_help_works_without_the_packages_of_the_extra():
    code = (
        "import sys; sys.modules['aiokafka'] = None; from kafkalog_broker.mirror.__main__ import main; sys.exit(main())"
    )
    help_, run = (
        subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=60
        )
        for arguments in (["--help"], GIVEN)
    )
    assert (help_.returncode, help_.stderr) == (0, "")
    assert "kafkalog-mirror --bootstrap" in help_.stdout
    assert run.returncode == WRONG_USAGE
    assert run.stderr.startswith("kafkalog-mirror: a mirror needs the package aiokafka; pip install ")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def mirror_of(end, target, pause_reason=None):
    log = SimpleNamespace(log_start_offset=0, log_end_offset=end)
    one = SimpleNamespace(name="orders-0", log=log, pause_reason=pause_reason)
    return SimpleNamespace(
        partitions={("orders", 0): one}, targets={("orders", 0): target}, received_bytes=5_000_000, lag=target - end
    )


def test_progress_on_a_terminal_shows_offsets_and_waiting_partitions():
    stream = Terminal()
    bar = Progress(mirror_of(50, 200), once=True, stream=stream)  # type: ignore[arg-type]
    bar.show()
    bar.close()
    assert "50.0/200" in stream.getvalue()
    stream = Terminal()
    line = Progress(mirror_of(50, 200, "it has no leader"), once=False, stream=stream)  # type: ignore[arg-type]
    line.show()
    assert "1 partitions, lag 150 offsets" in stream.getvalue()
    assert "1 waiting: orders-0" in stream.getvalue()


def test_summary_shows_partitions_lag_and_rate():
    assert summary(mirror_of(50, 1200), 3_000_000, 2.0) == "1 partitions, lag 1,150 offsets, 1.0 MB/s"  # type: ignore[arg-type]
