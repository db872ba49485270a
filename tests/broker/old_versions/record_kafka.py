"""Ask a real Kafka 2.8 the scenario and keep its answers:

    python -m tests.broker.old_versions.record_kafka HOST:PORT

with a new and empty broker there, log.retention.ms=-1 and log.cleaner.enable=false. 2.8 is a release that serves the
versions of the protocol guides and stores v2 batches. Writes kafka-2.8.2.json.xz alongside this file.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

from tests.broker.old_versions.helpers.old_client import OldClient, connect_over_network, string
from tests.broker.old_versions.helpers.old_scenario import TOPICS, answers, packed, random_sets

RECORDED = Path(__file__).with_name("kafka-2.8.2.json.xz")


def main(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    host, port = bootstrap.split(":")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(
        [NewTopic(name, 1, 1, config=dict(config)) for name, config in TOPICS.items()]
    ).values():
        made.result(30)
    client = OldClient(connect_over_network(host, int(port)))
    for topic in TOPICS:
        client.until_there(topic)
    while client.request(10, 0, string("g"))[:2] != b"\0\0":
        pass
    sets = [[topic, version, packed(data)] for topic, version, data in random_sets()]
    found = {"sets": sets, **answers(client, sets)}
    RECORDED.write_bytes(lzma.compress(json.dumps(found).encode(), preset=9))


if __name__ == "__main__":
    main(sys.argv[1])
