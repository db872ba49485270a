"""Ask a real Kafka the table of rights and keep its answers: python -m tests.broker.security.record_acls

Writes kafka-4.3.0-acls.json.xz alongside this file: one answer for each case and set of rights.
"""

from __future__ import annotations

import json
import lzma
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.broker.security.helpers.acl_answers import Connections, prepare, table
from tests.broker.security.helpers.acl_case import ADMIN
from tests.broker.security.helpers.acl_scenario import users
from tests.interop.real_kafka import VERSION, RealKafka
from tests.interop.sasl_kafka import sasl_kafka

ANSWERS = Path(__file__).with_name(f"kafka-{VERSION}-acls.json.xz")
LISTENER = "listener.name.sasl_plaintext."
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def security() -> dict[str, str]:
    """Properties that Kafka and this broker share."""
    known = " ".join(f'user_{name}="{ADMIN}"' for name in (ADMIN, *users().values()))
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        f"{LISTENER}plain.sasl.jaas.config": f'{module} required username="{ADMIN}" password="{ADMIN}" {known};',
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ADMIN};User:ANONYMOUS",  # the controller's listener is without SASL
        "auto.create.topics.enable": "true",
    }


@contextmanager
def kafka(directory: str | Path) -> Iterator[tuple[RealKafka, int]]:
    """Start a Kafka; yield it and its port with SASL."""
    with sasl_kafka(directory, security()) as (running, (_, sasl)):
        yield running, sasl


def answers_of_kafka(port: int) -> dict[str, Any]:
    connections = Connections(port)
    try:
        return table(connections.ask, prepare(connections.ask), wait=True)
    finally:
        connections.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work, kafka(work) as (_, port):
        found = answers_of_kafka(port)
    lines = [f"{json.dumps(label)}: {json.dumps(answer)}" for label, answer in found.items()]
    ANSWERS.write_bytes(lzma.compress(("{\n" + ",\n".join(lines) + "\n}\n").encode()))
