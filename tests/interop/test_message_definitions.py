"""The message definitions of the package are those in the jars of Kafka."""

from __future__ import annotations

from tests.format.record_messages import DEFINITIONS, fetch_jars, lines
from tests.interop.real_kafka import cache_dir


def test_the_definitions_are_those_of_kafkas_jars() -> None:
    jars = cache_dir() / "message-definitions"
    fetch_jars(jars)
    assert DEFINITIONS.read_text(encoding="ascii").splitlines() == list(lines(jars))
