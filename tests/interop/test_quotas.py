"""Quotas: requests and kafka-configs.sh get the same responses from a real Kafka and from our broker."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from kio.schema.alter_client_quotas.v1 import request as alter
from kio.schema.describe_client_quotas.v1 import request as describe
from kio.static.primitive import f64, i8

from kafkalog_broker.testing import RunningBroker
from kafkalog_broker.testing_support.client_requests import ask
from tests.interop.real_kafka import RealKafka, available, learnt, run_tool

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

Named = tuple[tuple[str, str | None], ...]
Operations = dict[str, float | None]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    with (
        RealKafka(tmp_path_factory.mktemp("kafka"), {}, short_lived=True) as theirs,
        RunningBroker(tmp_path_factory.mktemp("ours") / "data") as ours,
    ):
        yield theirs, ours


ALTERATIONS: list[tuple[Named, Operations]] = [
    ((("user", "alice"),), {"producer_byte_rate": 1048576.0, "consumer_byte_rate": 2e6, "request_percentage": 12.5}),
    ((("user", "alice"), ("client-id", "app")), {"producer_byte_rate": 1000.0}),
    ((("user", "alice"), ("client-id", None)), {"controller_mutation_rate": 0.5}),
    ((("user", None),), {"request_percentage": 200.0}),
    ((("client-id", "app"),), {"consumer_byte_rate": 1.0}),
    ((("client-id", None),), {"producer_byte_rate": 5.0}),
    ((("user", None), ("client-id", None)), {"producer_byte_rate": 7.0}),
    ((("ip", "127.0.0.1"),), {"connection_creation_rate": 1000.0}),
    ((("ip", None),), {"connection_creation_rate": 2000.0}),
    ((("user", "alice"),), {"consumer_byte_rate": None}),
    ((("user", "nobody"),), {"consumer_byte_rate": None}),
    ((), {"producer_byte_rate": 1.0}),
    ((("user", ""),), {"producer_byte_rate": 1.0}),
    ((("group", "g"),), {"producer_byte_rate": 1.0}),
    ((("ip", "127.0.0.1"), ("user", "a")), {"connection_creation_rate": 1.0}),
    ((("user", "a"),), {"connection_creation_rate": 1.0}),
    ((("ip", "127.0.0.1"),), {"producer_byte_rate": 1.0}),
    ((("ip", "not an address"),), {"connection_creation_rate": 1.0}),
    ((("user", "a"),), {"no_such_rate": 1.0}),
    ((("user", "a"),), {"producer_byte_rate": 1.5}),
    ((("user", "a"),), {"producer_byte_rate": 0.0}),
    ((("user", "a"),), {"producer_byte_rate": -1.0}),
    ((("user", "a"),), {"request_percentage": 0.0}),
    ((("user", "a"),), {"producer_byte_rate": 1e19}),
    ((("ip", "127.0.0.2"),), {"connection_creation_rate": 1e10}),
    ((("user", "a"), ("user", "b")), {"producer_byte_rate": 1.0}),
]

FILTERS: list[tuple[list[tuple[str, int, str | None]], bool]] = [
    ([], False),
    ([], True),
    ([("user", 0, "alice")], False),
    ([("user", 0, "alice")], True),
    ([("user", 1, None)], False),
    ([("user", 2, None)], False),
    ([("user", 2, None)], True),
    ([("user", 2, None), ("client-id", 2, None)], True),
    ([("user", 0, "alice"), ("client-id", 1, None)], True),
    ([("client-id", 2, None)], False),
    ([("ip", 2, None)], False),
    ([("ip", 0, "127.0.0.1")], True),
    ([("ip", 1, None)], True),
    ([("ip", 1, None), ("user", 1, None)], True),
    ([("", 1, None)], False),
    ([("group", 1, None)], False),
    ([("user", 0, None)], False),
    ([("user", 1, "x")], False),
    ([("user", 2, "x")], False),
    ([("user", 7, None)], False),
    ([("user", 1, None), ("user", 2, None)], False),
]


def connected(broker: Any) -> socket.socket:
    host, _, port = broker.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), 30)


def altered(broker: Any, named: Named, operations: Operations) -> Any:
    request = alter.AlterClientQuotasRequest(
        entries=(
            alter.EntryData(
                entity=tuple(alter.EntityData(entity_type=kind, entity_name=name) for kind, name in named),
                ops=tuple(
                    alter.OpData(key=key, value=f64(value or 0.0), remove=value is None)
                    for key, value in operations.items()
                ),
            ),
        ),
        validate_only=False,
    )
    with connected(broker) as connection:
        try:
            answer = ask(connection, request)
        except OSError:
            return "closed"
    return [
        (entry.error_code, entry.error_message, {(one.entity_type, one.entity_name) for one in entry.entity})
        for entry in answer.entries
    ]


def found(broker: Any, components: list[tuple[str, int, str | None]], strict: bool) -> Any:
    request = describe.DescribeClientQuotasRequest(
        components=tuple(
            describe.ComponentData(entity_type=kind, match_type=i8(how), match=match) for kind, how, match in components
        ),
        strict=strict,
    )
    with connected(broker) as connection:
        try:
            answer = ask(connection, request)
        except OSError:
            return "closed"
    entries = {
        frozenset((one.entity_type, one.entity_name) for one in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries or ()
    }
    return answer.error_code, answer.error_message or None, answer.entries is None, entries


def test_responses_to_quota_requests_equal_those_of_kafka(both: tuple[Any, Any]) -> None:
    different = []
    for named, operations in ALTERATIONS:
        told = [altered(broker, named, operations) for broker in both]
        if told[0] != told[1]:
            different.append((named, operations, *told))
    for components, strict in FILTERS:
        mine = found(both[1], components, strict)
        kafkas = learnt(partial(found, both[0], components, strict), mine)
        if kafkas != mine:
            different.append((components, strict, kafkas, mine))
    assert not different, "\n".join(map(str, different))


COMMANDS = [
    "--alter --add-config producer_byte_rate=1024,consumer_byte_rate=2048 --entity-type users --entity-name bob",
    "--alter --add-config request_percentage=50 --entity-type users --entity-default",
    "--alter --add-config producer_byte_rate=10 --entity-type users --entity-name bob --entity-type clients "  # noqa: ISC004
    "--entity-name app",
    "--alter --add-config controller_mutation_rate=3.5 --entity-type clients --entity-default",
    "--alter --add-config connection_creation_rate=500 --entity-type ips --entity-name 127.0.0.1",
    "--describe --entity-type users --entity-name bob",
    "--describe --entity-type users --entity-default",
    "--describe --entity-type users --entity-name bob --entity-type clients --entity-name app",
    "--describe --entity-type clients --entity-default",
    "--describe --entity-type ips --entity-name 127.0.0.1",
    "--alter --delete-config consumer_byte_rate --entity-type users --entity-name bob",
    "--describe --entity-type users --entity-name bob",
]


def said(broker: Any, command: str) -> list[str]:
    text = run_tool("ConfigCommand", "--bootstrap-server", broker.bootstrap, *command.split())
    return sorted(re.findall(r"\S+", text))


def test_kafka_configs_tool_prints_the_same_as_with_kafka(both: tuple[Any, Any]) -> None:
    for command in COMMANDS:
        mine = said(both[1], command)
        assert learnt(partial(said, both[0], command), mine) == mine, command
