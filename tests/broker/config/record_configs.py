"""Ask a real Kafka for all its configuration and keep the answers: python -m tests.broker.config.record_configs

Writes beside this file kafka-4.3.0-definitions.json (what its code defines) and kafka-4.3.0-configs.json: what
DescribeConfigs says of a broker that was started with few properties, and of one with several in other units and with
changes made while it ran. Kafka's descriptions are left out.
"""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from kafkalog_broker.testing_support.client_requests import ask
from tests.broker.api.helpers.admin_scenario import BROKER, SET, TOPIC, change, create, describe, incremental, new_topic
from tests.broker.api.helpers.plain_entities import plain, request_entity
from tests.interop.real_kafka import VERSION, RealKafka, classpath

HERE = Path(__file__).parent
FIELDS = ("name", "value", "read_only", "config_source", "is_sensitive", "config_type")
STATIC: dict[str, dict[str, object]] = {
    "few": {},
    "many": {
        "log.roll.hours": 1,
        "log.retention.minutes": 5,
        "log.roll.jitter.hours": 1,
        "log.flush.scheduler.interval.ms": 1000,
        "log.cleanup.policy": "compact, delete",
        "num.partitions": " 3 ",
        "log.cleaner.min.cleanable.ratio": ".25",
    },
}
DYNAMIC: dict[str, dict[str, dict[str, str]]] = {
    "few": {},
    "many": {
        "1": {"log.retention.ms": "777", "log.flush.interval.ms": "55", "background.threads": "11"},
        "": {
            "log.roll.ms": "999999",
            "log.retention.ms": "888",
            "background.threads": "12",
            "message.max.bytes": "5000000",
        },
    },
}
TOPIC_CONFIGS = {"cleanup.policy": "compact,delete", "segment.bytes": "2000000", "internal.segment.bytes": "1000"}


class _Kafka(RealKafka):
    def _all_properties(self) -> dict[str, object]:
        properties = super()._all_properties()
        if "log.retention.minutes" in self.properties:
            del properties["log.retention.ms"]  # it would win
        return properties


def record(directory: Path, case: str) -> dict[str, Any]:
    with _Kafka(directory, STATIC[case]) as kafka:
        host, port = kafka.bootstrap.split(":")

        def run(step: Any) -> Any:
            key, versions, values = step
            with socket.create_connection((host, int(port)), 30) as connection:
                answer = ask(connection, request_entity(key, versions[0], values, {}))
            time.sleep(0.5)  # the controller's change reaches the broker's view a moment later
            return plain(answer)

        run(create(new_topic("t", configs=TOPIC_CONFIGS)))
        for name, configs in DYNAMIC[case].items():
            run(incremental(change(BROKER, name, *((key, SET, value) for key, value in configs.items()))))
        answer = run(describe((TOPIC, "t", None), (BROKER, "1", None), (BROKER, "", None)))
        static = (directory / "server.properties").read_text()
    text = json.dumps(
        {
            "static": dict(line.split("=", 1) for line in static.splitlines()),
            "dynamic": DYNAMIC[case],
            "topic_configs": TOPIC_CONFIGS,
            **{
                what: [
                    [*(entry[field] for field in FIELDS), [list(synonym.values()) for synonym in entry["synonyms"]]]
                    for entry in sorted(result["configs"], key=lambda entry: entry["name"])
                ]
                for what, result in zip(("topic", "broker", "all brokers"), answer["results"], strict=True)
            },
        }
    )
    found: dict[str, Any] = json.loads(text.replace(str(directory), "/kafka"))
    return found


def main() -> None:
    dumped = subprocess.run(
        ["java", "-cp", classpath(), str(HERE / "DumpDefinitions.java")], capture_output=True, text=True, check=True
    ).stdout
    (HERE / f"kafka-{VERSION}-definitions.json").write_text("[\n" + ",\n".join(dumped.splitlines()) + "\n]\n")
    with tempfile.TemporaryDirectory() as work:
        cases = {case: record(Path(work) / case, case) for case in STATIC}
    lines = json.dumps(cases).replace('], ["', '],\n["')
    (HERE / f"kafka-{VERSION}-configs.json").write_text(lines + "\n")


if __name__ == "__main__":
    main()
