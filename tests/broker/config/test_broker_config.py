"""BrokerConfig: precedence of its sources, units, listeners, and errors that name the property."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs_site.property_table import OWN_PREFIX
from kafkalog_broker.admin.config_entries import broker_entries, resource_entries, topic_entries
from kafkalog_broker.admin.config_resources import ConfigResourceType
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError, Source
from kafkalog_broker.config.listeners import Listener, with_bound_ports
from kafkalog_broker.config.property_names import nearest_property

CASES = json.loads(Path(__file__).with_name("kafka-4.3.0-configs.json").read_text())


class OnlyConfig:
    def __init__(self, config):
        self.config = config


def config_of(case):
    said = CASES[case]
    static = {name: value.lstrip() for name, value in said["static"].items()}  # as Properties.load does
    config = BrokerConfig.from_properties(static)
    return config.with_dynamic(said["dynamic"].get("", {}), said["dynamic"].get("1", {}))


def rows(entries):
    return {
        entry.name: [
            entry.name,
            entry.value,
            entry.read_only,
            entry.config_source,
            entry.is_sensitive,
            entry.config_type,
            [list(synonym) for synonym in entry.synonyms],
        ]
        for entry in entries
    }


@pytest.mark.parametrize("case", CASES)
def test_described_broker_configs_equal_those_of_kafka(case):
    kafkas = {row[0]: row for row in CASES[case]["broker"]}
    ours = rows(broker_entries(OnlyConfig(config_of(case))))  # type: ignore[arg-type]
    assert {name for name in ours if not name.startswith(OWN_PREFIX)} == set(kafkas)
    for name, row in kafkas.items():
        if name == "listeners" or name == "listener.security.protocol.map":
            row[2] = ours[name][2]  # Kafka can open listeners while it runs
        assert ours[name] == row, name


@pytest.mark.parametrize("case", CASES)
def test_described_topic_configs_equal_those_of_kafka(case):
    kafkas = {row[0]: row for row in CASES[case]["topic"]}
    ours = rows(topic_entries(OnlyConfig(config_of(case)), CASES[case]["topic_configs"]))  # type: ignore[arg-type]
    assert {name for name in ours if not name.startswith(OWN_PREFIX)} == set(kafkas)
    for name, row in kafkas.items():
        assert ours[name] == row, name


@pytest.mark.parametrize("case", CASES)
def test_describe_of_the_cluster_default_has_only_properties_set_for_all_brokers(case):
    kafkas = {row[0]: row for row in CASES[case]["all brokers"]}
    assert rows(resource_entries(OnlyConfig(config_of(case)), ConfigResourceType.BROKER, "")) == kafkas  # type: ignore[arg-type]


def made(**properties):
    return BrokerConfig.from_properties({name.replace("_", "."): value for name, value in properties.items()})


def test_property_in_the_finest_unit_wins():
    assert made(log_retention_hours=2).log_retention_ms == 7_200_000
    assert made(log_retention_hours=2, log_retention_minutes=3).log_retention_ms == 180_000
    assert made(log_retention_hours=2, log_retention_minutes=3, log_retention_ms=4).log_retention_ms == 4
    assert made(log_retention_minutes=-5).log_retention_ms == -1
    assert made().log_retention_ms == 168 * 3_600_000
    assert made(log_roll_hours=1).log_roll_ms == 3_600_000
    assert made(log_roll_jitter_hours=1).log_roll_jitter_ms == 3_600_000
    assert made(log_flush_scheduler_interval_ms=9).log_flush_interval_ms == 9


def test_overrides_win_and_may_be_python_booleans_and_lists():
    config = BrokerConfig.from_properties(
        {"num.partitions": "2", "log.dirs": ["/a", "/b"]}, {"num.partitions": 5, "auto.create.topics.enable": False}
    )
    assert (config.num_partitions, config.log_dirs, config.auto_create_topics_enable) == (5, ("/a", "/b"), False)


def test_broker_id_is_a_synonym_of_node_id():
    assert made().node_id == 1
    assert made(node_id=7).text("broker.id") == "7"
    assert made(broker_id=8).node_id == 8


def test_dynamic_property_wins_over_the_static_one_until_it_is_removed():
    start = made(message_max_bytes=100)
    changed = start.with_dynamic({"message.max.bytes": "200"}, {"message.max.bytes": "300"})
    assert changed.message_max_bytes == 300
    assert changed.with_dynamic({"message.max.bytes": "200"}, {}).message_max_bytes == 200
    assert changed.with_dynamic({}, {}).message_max_bytes == 100
    assert [source for _, _, source in changed.sources("message.max.bytes")] == [
        Source.DYNAMIC_BROKER,
        Source.DYNAMIC_DEFAULT_BROKER,
        Source.STATIC_BROKER,
        Source.DEFAULT,
    ]


@pytest.mark.parametrize(
    ("properties", "name", "said"),
    [
        ({"num.partitions": "0"}, "num.partitions", "Value must be at least 1"),
        ({"num.partitions": "many"}, "num.partitions", "Not a number of type INT"),
        ({"compression.type": "rar"}, "compression.type", "String must be one of: uncompressed, zstd"),
        ({"log.retention.ms": "0"}, "log.retention.ms", "unlimited is -1"),
        ({"log.roll.ms": "0"}, "log.roll.ms", "at least 1"),
        ({"log.dirs": "", "log.dir": ""}, "log.dirs", "at least one directory"),
        ({"authorizer.class.name": "org.Some"}, "authorizer.class.name", "classes of Java cannot be loaded"),
        (
            {"group.min.session.timeout.ms": "9", "group.max.session.timeout.ms": "8"},
            "group.min.session.timeout.ms",
            "",
        ),
        ({"listeners": "9092"}, "listeners", "expected NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://a:2"}, "listeners", "different name"),
        ({"listeners": "SSL://a:1"}, "ssl.keystore.location", "listener SSL: a listener with TLS needs a certificate"),
        (
            {"listeners": "SASL_PLAINTEXT://a:1"},
            "sasl.enabled.mechanisms",
            "listener SASL_PLAINTEXT: Invalid value GSSAPI",
        ),
        ({"listeners": "INSIDE://a:1"}, "listeners", "No security protocol defined for listener INSIDE"),
        ({"listeners": "CONTROLLER://a:1", "controller.listener.names": "CONTROLLER"}, "listeners", "no listener"),
        ({"listener.security.protocol.map": "A:B"}, "listener.security.protocol.map", "SASL_SSL"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "advertised.listeners", "nonroutable"),
        ({"advertised.listeners": "OTHER://a:1"}, "advertised.listeners", "not in listeners"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "advertised.listeners", "nonroutable"),
    ],
)
def test_invalid_property_raises_an_error_that_names_it(properties, name, said):
    with pytest.raises(ConfigError) as raised:
        BrokerConfig.from_properties(properties)
    assert raised.value.name == name
    assert name in str(raised.value)
    assert said in str(raised.value)


def test_unknown_property_of_the_file_is_accepted_without_effect():
    of_other_releases = {
        "max.decompressed.message.bytes": "1000",
        "zookeeper.connect": "localhost:2181",
        "zookeeper.ssl.keystore.location": "/x",
        "confluent.support.metrics.enable": "false",
        "listener.name.external.my.plugin.option": "x",
        "num.partition": "4",
        "rsm.confi.dir": "/x",
    }
    config = BrokerConfig.from_properties({**of_other_releases, "rsm.config.dir": "/x"})
    assert config.unknown() == sorted(of_other_releases)
    assert config.without_effect() == ["rsm.config.dir"]
    assert config.num_partitions == 1
    assert config.with_dynamic({"message.max.bytes": "9"}, {}).unknown() == sorted(of_other_releases)
    assert nearest_property("num.partition") == "num.partitions"
    assert nearest_property("max.decompressed.message.bytes") is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("autorizer.class.name", "did you mean authorizer.class.name?"),
        ("suoer.users", "did you mean super.users?"),
        ("listners", "did you mean listeners?"),
        ("listener.name.external.ssl.client.auht", "did you mean ssl.client.auth?"),
        ("listener.name.external.scram-sha-512.sasl.jaas.confg", "did you mean sasl.jaas.config?"),
        ("sasl.mechanisms.of.tomorrow", "Unknown broker property"),
        ("log.dirz", "did you mean log.dir"),
        ("log.retention.hour", "did you mean log.retention.hours?"),
        ("log.flush.interval.message", "did you mean log.flush.interval.messages?"),
    ],
)
def test_unknown_security_property_of_the_file_is_refused(name, said):
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties({"log.dirs": "/x", name: "x"})
    assert caught.value.name == name
    assert said in str(caught.value)


def test_unknown_override_is_refused():
    with pytest.raises(ConfigError, match=r"did you mean num\.partitions\?"):
        BrokerConfig.from_properties({"log.dirs": "/x"}, {"num.partition": "1"})


def test_kraft_properties_are_accepted_and_listed_as_without_effect():
    config = BrokerConfig.from_properties(
        {
            "process.roles": "broker,controller",
            "controller.quorum.voters": "1@localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://h:9092,CONTROLLER://h:9093",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "listener.name.plaintext.max.connections": "7",
            "num.io.threads": "4",
        }
    )
    assert config.listeners == (Listener("PLAINTEXT", "h", 9092),)
    assert {"process.roles", "num.io.threads", "controller.quorum.voters"} <= set(config.without_effect())
    assert "listener.name.plaintext.max.connections" in config.without_effect()
    assert "listeners" not in config.without_effect()


def test_advertised_listeners_have_the_bound_ports():
    config = BrokerConfig.from_properties(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://[::1]:7",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        }
    )
    assert with_bound_ports(config.advertised_listeners, {"PLAINTEXT": 1234}) == (
        Listener("PLAINTEXT", "127.0.0.1", 1234),
        Listener("INSIDE", "::1", 7),
    )
    told = BrokerConfig.from_properties(
        {"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://example.org:19092"}
    ).advertised_listeners
    assert told == (Listener("PLAINTEXT", "example.org", 19092),)


@pytest.mark.parametrize(
    ("properties", "name", "said"),
    [
        ({"max.connections": "0"}, "max.connections", "Invalid max.connections 0"),
        ({"max.connection.creation.rate": "0"}, "max.connection.creation.rate", "Invalid max.connection.creation.rate"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip", "can be set to zero only if"),
        ({"connections.max.idle.ms": "100"}, "connections.max.idle.ms", "should always be less than"),
        *(
            ({"max.connections.per.ip.overrides": text}, "max.connections.per.ip.overrides", "list of address:number")
            for text in (":5", "127.0.0.1:-1", "127.0.0.1", "[::1]:5", "a b:5")
        ),
    ],
)
def test_limits_that_would_admit_no_connection_are_refused(properties, name, said):
    with pytest.raises(ConfigError, match=said) as caught:
        BrokerConfig.from_properties({"log.dirs": "/x"}, properties)
    assert caught.value.name == name
    with pytest.raises(ConfigError, match=said):
        BrokerConfig.from_properties({"log.dirs": "/x"}).with_dynamic(properties, {})


def test_zero_connections_per_ip_with_overrides_is_accepted():
    config = made(max_connections_per_ip=0, max_connections_per_ip_overrides="127.0.0.1:5,host.example-1.org:2,::1:3")
    assert config.max_connections_per_ip == 0


def test_dedupe_buffer_of_a_cleaner_thread_of_at_most_a_mebibyte_is_refused():
    needed = "at least 1MB per cleaner thread"
    for too_small in ({"log.cleaner.dedupe.buffer.size": 1 << 20}, {"log.cleaner.enable": "false"}):
        with pytest.raises(ConfigError, match=needed) as caught:
            BrokerConfig.from_properties({"log.cleaner.dedupe.buffer.size": 500_000, **too_small})
        assert caught.value.name == "log.cleaner.dedupe.buffer.size"
    config = BrokerConfig.from_properties({"log.cleaner.dedupe.buffer.size": 2_000_000})
    with pytest.raises(ConfigError, match=needed):
        config.with_dynamic({"log.cleaner.threads": "2"}, {})


def test_dedupe_buffer_without_room_for_a_key_is_refused_unless_the_cleaner_is_disabled():
    small = {"log.cleaner.dedupe.buffer.size": 2_000_000, "log.cleaner.io.buffer.load.factor": 0.00001}
    with pytest.raises(ConfigError, match="even a single message") as caught:
        BrokerConfig.from_properties(small)
    assert caught.value.name == "log.cleaner.dedupe.buffer.size"
    BrokerConfig.from_properties({**small, "log.cleaner.enable": "false"})
