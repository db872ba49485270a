"""Settings of Kafka's Java producer as librdkafka's: what a job of Spark's Kafka sink has in its options."""

from __future__ import annotations

import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.sink.option_parsing import parse_write_options
from kafkalog_spark.spark.librdkafka import PRODUCER_WITHOUT_EFFECT, RENAMED, ProducerSettings, producer_settings

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="se;c\\"ret";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required\n  username=me\n  password='x' ;"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"acks": "all", "linger.ms": "5"}, {"acks": "all", "linger.ms": "5"}),
        ({"max.request.size": "2000000"}, {"message.max.bytes": "2000000"}),
        ({"max.request.size": "5", "message.max.bytes": "2000"}, {"message.max.bytes": "2000"}),
        ({"buffer.memory": "33554432"}, {"queue.buffering.max.kbytes": "32768"}),
        ({"buffer.memory": "100"}, {"queue.buffering.max.kbytes": "1"}),
        ({"receive.buffer.bytes": "-1"}, {"socket.receive.buffer.bytes": "0"}),
        ({"send.buffer.bytes": "131072"}, {"socket.send.buffer.bytes": "131072"}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({"sasl.jaas.config": PLAIN}, {"sasl.username": "me", "sasl.password": 'se;c"ret'}),
        ({"sasl.jaas.config": SCRAM}, {"sasl.username": "me", "sasl.password": "'x'"}),
    ],
)
def test_java_producer_settings_are_translated_to_librdkafkas(given: dict[str, str], wanted: dict[str, str]) -> None:
    assert producer_settings(given) == ProducerSettings(wanted, [])


def test_settings_only_of_the_java_client_are_reported_as_ignored(caplog: pytest.LogCaptureFixture) -> None:
    given = {"kafka.bootstrap.servers": "a:1", "kafka.max.block.ms": "100", "kafka.Metric.Reporters": "x"}
    options = parse_write_options(given)
    assert options.producer == {"bootstrap.servers": "a:1"}
    assert options.ignored == ("kafka.max.block.ms", "kafka.Metric.Reporters")
    assert caplog.messages == [
        "options without effect on a write of kafkalog: kafka.max.block.ms, kafka.Metric.Reporters"
    ]


@pytest.mark.parametrize(
    "jaas",
    [
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;",
        'x.PlainLoginModule required username="me";',
        "",
    ],
)
def test_untranslatable_login_is_refused_without_its_secret(jaas: str) -> None:
    with pytest.raises(OptionError) as caught:
        producer_settings({"sasl.jaas.config": jaas})
    assert "give librdkafka's settings instead: kafka.sasl.username" in str(caught.value)
    assert not jaas or jaas not in str(caught.value)


def test_invalid_buffer_memory_is_refused() -> None:
    with pytest.raises(OptionError, match=r"option 'kafka.buffer.memory' must be a number of bytes, got '32m'"):
        producer_settings({"buffer.memory": "32m"})


def test_every_translated_name_is_known_to_librdkafka() -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    given = dict.fromkeys(RENAMED, "100000") | {"buffer.memory": "1048576", "sasl.jaas.config": PLAIN}
    settings = producer_settings({"bootstrap.servers": "127.0.0.1:1", **given}).settings
    assert len(settings) == len(RENAMED) + 4
    confluent_kafka.Producer(settings)
    for name in PRODUCER_WITHOUT_EFFECT:
        with pytest.raises(confluent_kafka.KafkaException, match="No such configuration property"):
            confluent_kafka.Producer({name: "1"})
