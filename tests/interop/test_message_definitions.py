"""The message definitions and error codes of the package, compared with the jars of Kafka."""

from __future__ import annotations

import re

from kafkalog_broker.errors import ErrorCode
from tests.format.record_messages import DEFINITIONS, fetch_jars, lines
from tests.interop.real_kafka import cache_dir, run_tool


def test_message_definitions_equal_those_of_kafka() -> None:
    jars = cache_dir() / "message-definitions"
    fetch_jars(jars)
    assert DEFINITIONS.read_text(encoding="ascii").splitlines() == list(lines(jars))


def test_error_codes_equal_those_of_kafka() -> None:
    table = run_tool("org.apache.kafka.common.protocol.Errors")
    kafkas = {name: int(code) for name, code in re.findall(r"<tr><td>(\w+)</td><td>(-?\d+)</td>", table)}
    assert {code.name.upper(): code.value for code in ErrorCode} == kafkas
