"""Command-line arguments of kafkalog-broker --mirror-of, and its errors for invalid ones."""

from __future__ import annotations

import pytest

from kafkalog_broker import cli
from kafkalog_broker.mirror.mirror_options import serving_options
from kafkalog_spark.errors import OptionError
from kafkalog_spark.exit_codes import WRONG_USAGE

GIVEN = ("--mirror-of", "127.0.0.1:1")


def test_mirror_of_writes_into_the_log_directory_of_the_broker(tmp_path):
    made = serving_options("k:9", "orders|clicks.*", ["client.id=me"], 500_000, [str(tmp_path)])
    assert (made.bootstrap, made.directory, made.max_bytes_per_second) == ([("k", 9)], tmp_path, 500_000)
    assert (made.keeps_own_internal_topics, made.internal, made.once) == (True, False, False)
    assert made.topics.fullmatch("clicks2")
    assert made.settings.client_id == "me"


def test_mirror_with_two_log_directories_is_refused(tmp_path):
    with pytest.raises(OptionError, match="2 log directories"):
        serving_options("k:9", ".*", [], None, ["a", "b"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--mirror-topics", "("), "is not a regular expression"),
        (("--max-bytes-per-second", "5x"), "expected a number of bytes"),
        (("-X", "group.id=g"), "unsupported property"),
        (("--override", "log.dirs=a,b"), "2 log directories"),
    ],
)
def test_invalid_argument_is_reported_and_no_file_is_created(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    where = () if "--override" in arguments else ("--log-dir", "mirror")
    assert cli.main([*GIVEN, *where, *arguments]) == WRONG_USAGE
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [("--mirror-topics", "orders"), ("--max-bytes-per-second", "5M"), ("-X", "client.id=me")]
)
def test_mirror_arguments_without_a_source_are_refused(arguments, capsys, tmp_path):
    assert cli.main(["--log-dir", str(tmp_path / "logs"), *arguments]) == WRONG_USAGE
    assert (
        f"{arguments[0]} without --mirror-of has no effect; give --mirror-of HOST:PORT, too" in capsys.readouterr().err
    )


def test_mirror_disables_automatic_topic_creation(tmp_path):
    given = cli.parser().parse_args(
        [*GIVEN, "--log-dir", str(tmp_path), "--override", "auto.create.topics.enable=true"]
    )
    assert cli.configuration(given).auto_create_topics_enable is False
