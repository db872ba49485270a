"""Produce and fetch over SASL_SSL, compared with Apache Kafka.

The same librdkafka clients load both brokers in turn, with PEM certificates, SCRAM-SHA-512 and TLS 1.3. Rates are those
of the best of several rounds. `python -m benchmarks.security 4` measures four clients only.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.broker_clients import Clients, consume, produce
from benchmarks.broker_sides import PROPERTIES, delete_topic, new_topic
from benchmarks.report import Report, best_rate, best_ratio, in_turn
from kafkalog_broker.testing import RunningBroker
from kafkalog_broker.testing_support.security import SecurityForTests
from tests.interop.real_kafka import RealKafka
from tests.interop.sasl_kafka import free_port

PARTITIONS = 4
CLIENTS = (1, 4)
SIZE = 1000
RECORDS = 250_000
USER, MECHANISM = "alice", "SCRAM-SHA-512"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class Side(NamedTuple):
    """Addresses of a broker: `bootstrap` without security, to create topics, and `secure` for SASL_SSL."""

    bootstrap: str
    secure: str

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def properties(security: SecurityForTests, plain: int, secure: int) -> dict[str, object]:
    """Return the properties of both brokers, with a PLAINTEXT listener on port `plain` and SASL_SSL on `secure`."""
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{secure}"
    return {
        **PROPERTIES,
        **security.properties(),
        "listeners": listeners,
        "sasl.enabled.mechanisms": MECHANISM,
        f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": _SCRAM_MODULE,
    }


def with_controller(given: Mapping[str, object]) -> dict[str, object]:
    """Return the properties with those that Apache Kafka requires for its controller."""
    controller = free_port()
    protocols = ("CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", "SASL_SSL:SASL_SSL")
    one_line = {name: str(value).replace("\n", "\\n") for name, value in given.items()}  # PEM in a properties file
    return {
        **one_line,
        "advertised.listeners": given["listeners"],
        "listeners": f"{given['listeners']},CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": ",".join(protocols),
        "inter.broker.listener.name": "PLAINTEXT",
    }


def add_user(bootstrap: str, security: SecurityForTests) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsertion = UserScramCredentialUpsertion(USER, info, security.password(USER).encode())
    admin = AdminClient({"bootstrap.servers": bootstrap})  # must exist until the response arrives
    for done in admin.alter_user_scram_credentials([upsertion]).values():
        done.result(30)


def load(report: Report, sides: Mapping[str, Side], client: Mapping[str, str], clients: Clients, count: int) -> None:
    """Report the rates of producing and of consuming with `count` clients."""
    topics = dict.fromkeys(sides, "")

    def produced(name: str) -> float:
        side = sides[name]
        topics[name] = new_topic(side, PARTITIONS)
        one = {
            "bootstrap": side.secure, "topic": topics[name], "records": RECORDS // count, "size": SIZE,
            "codec": "none", "security": client,
        }  # fmt: skip
        return clients.run(produce, [one] * count).seconds

    def consumed(name: str) -> float:
        side = sides[name]
        jobs = [
            {
                "bootstrap": side.secure, "topic": topics[name], "partitions": range(n, PARTITIONS, count),
                "security": client,
            }
            for n in range(count)
        ]  # fmt: skip
        seconds = clients.run(consume, jobs).seconds
        delete_topic(side, topics[name])
        return seconds

    runs = {(what.__name__, name): partial(what, name) for what in (produced, consumed) for name in sides}
    seconds = in_turn(runs, rounds=5, warmups=2)
    for what in ("produced", "consumed"):
        ours, kafka = seconds[what, "kafkalog"], seconds[what, "kafka"]
        report.add(
            "security",
            f"SASL_SSL, {'produce' if what == 'produced' else 'fetch'}, {count} clients, {SIZE} B",
            kafkalog_MB_per_s=best_rate(RECORDS * SIZE / 1e6, ours),
            kafka_MB_per_s=best_rate(RECORDS * SIZE / 1e6, kafka),
            x_apache_kafka=round(best_ratio(kafka, ours), 2),
            bar=">= 1.0",
        )


def main(report: Report, counts: tuple[int, ...] = CLIENTS) -> None:
    security = SecurityForTests("SASL_SSL", {USER: "a secret of alice"})
    with TemporaryDirectory(prefix="kafkalog-bench-") as home, ExitStack() as stack, Clients(max(counts)) as clients:
        sides = {}
        for name in ("kafkalog", "kafka"):
            plain, secure = free_port(), free_port()
            given = properties(security, plain, secure)
            broker: Any = (
                RunningBroker(Path(home, name), given)
                if name == "kafkalog"
                else RealKafka(Path(home, name), with_controller(given))
            )
            stack.enter_context(broker)
            sides[name] = Side(f"127.0.0.1:{plain}", f"127.0.0.1:{secure}")
            add_user(f"127.0.0.1:{plain}", security)
        for count in counts:
            load(report, sides, security.client(USER, MECHANISM), clients, count)


if __name__ == "__main__":
    main(Report(), tuple(map(int, sys.argv[1:])) or CLIENTS)
