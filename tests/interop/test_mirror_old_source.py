"""A mirror of Kafka 2.8.2 with v2 batches and with v1 and v0 message sets, which that release still stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.mirror.helpers.mirrors import findings, log_data, mirror_once
from tests.interop.old_kafka import OldKafka
from tests.interop.real_kafka import available
from tests.interop.test_mirror import CODECS, SMALL, WAIT, epochs, send, transactions

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

FORMATS = {"v2": "2.8", "v1": "0.10.2", "v0": "0.9.0"}


def test_mirrored_batches_equal_those_of_kafka(tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    with OldKafka(tmp_path / "kafka") as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        topics = []
        for name, version in FORMATS.items():
            for codec in CODECS:
                if codec == "zstd" and name != "v2":
                    continue  # comes with v2
                topics.append((f"{name}-{codec}", codec))
                config = {"message.format.version": version, "segment.bytes": "40000"}
                made = admin.create_topics([NewTopic(topics[-1][0], 1, 1, config=config)])
                made[topics[-1][0]].result(WAIT)
        made = admin.create_topics([NewTopic("moves", 1, 1)])
        made["moves"].result(WAIT)
        for round_ in range(2):
            for topic, codec in topics:
                send(kafka.bootstrap, topic, 400, first=400 * round_, config={"compression.type": codec})
            if not round_:
                transactions(kafka.bootstrap, "moves")
            mirror_once(kafka.bootstrap, mirror, "v.*|moves", settings=SMALL)
        for topic in [*(name for name, _ in topics), "moves"]:
            assert log_data(mirror, topic) == log_data(kafka.data_dir, topic), topic
            if not topic.startswith(("v0", "v1")):
                assert epochs(mirror, topic) == epochs(kafka.data_dir, topic), topic
        assert findings(mirror) == []
