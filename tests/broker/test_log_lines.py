"""Lines of the broker's log."""

from __future__ import annotations

import logging

from kafkalog_broker.runtime.logging_setup import LineFormatter


def formatted(message: str, *arguments: object, error: BaseException | None = None) -> str:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    return LineFormatter().format(logging.LogRecord("kafkalog", logging.INFO, "", 1, message, arguments, exc_info))


def test_control_characters_of_client_names_are_escaped_in_log_lines() -> None:
    line = formatted("topic %s is not there", "a\nERROR all is lost\x1b[31m\u202e")
    assert line.endswith("INFO topic a\\nERROR all is lost\\x1b[31m\\u202e is not there (kafkalog)")


def test_traceback_keeps_its_lines_with_control_characters_escaped() -> None:
    try:
        raise ValueError("a\x1b[2J")
    except ValueError as error:
        lines = formatted("it failed", error=error).split("\n")
    assert lines[0].endswith("INFO it failed (kafkalog)")
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: a\\x1b[2J"
    assert "raise ValueError" in "".join(lines[2:-1])
