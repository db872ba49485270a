"""Every property is defined as Kafka 4.3 defines it (kafka-4.3.0-definitions.json, see record_configs.py)."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kafkalog_broker
from docs_site.property_table import OWN_PREFIX
from kafkalog_broker.config.broker_config import BrokerConfig, served_properties
from kafkalog_broker.config.definition import ConfigError, Property, PropertyType, format_value
from kafkalog_broker.config.log_config import LogConfig, served_topic_properties
from kafkalog_broker.config.property_list import (
    BROKER_DEFAULTS,
    BROKER_PROPERTIES,
    KAFKA_PROPERTIES_FILE,
    OWN_PROPERTIES_FILE,
    TOPIC_PROPERTIES,
)
from kafkalog_broker.config.property_names import unserved_note
from kafkalog_broker.config.property_relatives import relatives
from kafkalog_broker.config.refused_properties import REFUSED
from kafkalog_broker.config.server_properties import DEFAULTS_WITHOUT_FILE
from kafkalog_spark.format.codecs import KAFKA_CODECS
from tests.broker.config.write_properties import allowed, made

DEFINITIONS = json.loads(Path(__file__).with_name("kafka-4.3.0-definitions.json").read_text())


def kafka_definitions(kind):
    return {entry["name"]: entry for entry in DEFINITIONS if entry["kind"] == kind}


def own_property_names(kind):
    """Names of the properties that Kafka does not have."""
    return {entry["name"] for entry in json.loads(OWN_PROPERTIES_FILE.read_text()) if entry["kind"] == kind}


@pytest.mark.parametrize(("kind", "ours"), [("broker", BROKER_PROPERTIES), ("topic", TOPIC_PROPERTIES)])
def test_property_names_are_those_of_kafka_and_our_own(kind, ours):
    assert set(ours) - own_property_names(kind) == set(kafka_definitions(kind))


def test_own_property_names_begin_with_kafkalog():
    for name in own_property_names("broker") | own_property_names("topic"):
        assert name.startswith(OWN_PREFIX)


@pytest.mark.parametrize("kind", ["broker", "topic"])
def test_own_property_is_defined_beside_those_of_kafka(kind, tmp_path):
    """Runs in its own process, whose list of own properties has only this one."""
    entry = {"kind": kind, "name": "kafkalog.age.ms", "type": "LONG", "default": "-1", "update": "cluster-wide",
             "allowed": {"low": -1}, "doc": "Age at which something happens; -1 for none."}  # fmt: skip
    (tmp_path / "own.json").write_text(json.dumps([entry]))
    program = (
        "import pathlib, sys\n"
        "real = pathlib.Path.read_bytes\n"
        "own = pathlib.Path(sys.argv[1])\n"
        "pathlib.Path.read_bytes = lambda path: real(own if path.name == 'own_properties.json' else path)\n"
        "from kafkalog_broker.config import property_list as listed\n"
        "found = {**listed.BROKER_PROPERTIES, **listed.TOPIC_PROPERTIES}['kafkalog.age.ms']\n"
        "print(len(listed.BROKER_PROPERTIES), len(listed.TOPIC_PROPERTIES), found.default, found.parse('7'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "own.json")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    counts = {
        "broker": len(set(BROKER_PROPERTIES) - own_property_names("broker")),
        "topic": len(set(TOPIC_PROPERTIES) - own_property_names("topic")),
    }
    counts[kind] += 1
    assert done.stdout.split() == [str(counts["broker"]), str(counts["topic"]), "-1", "7"]


@pytest.mark.parametrize(("kind", "ours"), [("broker", BROKER_PROPERTIES), ("topic", TOPIC_PROPERTIES)])
def test_types_and_defaults_equal_those_of_kafka(kind, ours):
    for name, entry in kafka_definitions(kind).items():
        default = None if entry["default"] == "<<none>>" else entry["default"]
        found = ours[name]
        assert (found.type.name, found.default) == (entry["type"], default), name


@pytest.mark.parametrize(("kind", "ours"), [("broker", BROKER_PROPERTIES), ("topic", TOPIC_PROPERTIES)])
def test_dynamic_and_internal_properties_are_those_of_kafka(kind, ours):
    for name, entry in kafka_definitions(kind).items():
        assert (ours[name].update.value, ours[name].internal) == (entry["update"], entry["internal"]), name


def test_properties_file_equals_the_output_of_its_script():
    assert KAFKA_PROPERTIES_FILE.read_text() == made()


@pytest.mark.parametrize(
    ("validator", "made"),
    [
        (None, None),
        ("non-null string", None),
        ("[0,...]", {"low": 0}),
        ("[0,...,0.5]", {"low": 0, "high": 0.5}),
        ("[-131072,...,22]", {"low": -131072, "high": 22}),
        ("[1,...,9] or -1", {"low": 1, "high": 9, "also": -1}),
        ("[compact, delete]", {"words": ["compact", "delete"]}),
        ("(case insensitive) [ES256, RS256]", {"words": ["ES256", "RS256"], "fold": True}),
        ("non-empty string", {"not_empty": True}),
        ("[partitionId]:[brokerId],[partitionId]:[brokerId],...", {"throttled_replicas": True}),
    ],
)
def test_validators_of_kafka_are_parsed(validator, made):
    assert allowed(validator) == made


def test_unknown_validator_raises_value_error():
    with pytest.raises(ValueError, match="an even number"):
        allowed("an even number")


def kafka_validator_text(entry: Property) -> str | None:
    """What Kafka's validator of that meaning prints."""
    limits = entry.allowed or {}
    match limits:
        case {"words": words, **more}:
            return f"{'(case insensitive) ' if more.get('fold') else ''}[{', '.join(words)}]"
        case {"not_empty": True}:
            return "non-empty string"
        case {"throttled_replicas": True}:
            return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        case {"low": _} | {"high": _}:
            bounds = {"low": "", **limits}
            high = f",{bounds['high']}" if "high" in bounds else ""
            also = f" or {bounds['also']}" if "also" in bounds else ""
            return f"[{bounds['low']},...{high}]{also}"
    return None


@pytest.mark.parametrize(("kind", "ours"), [("broker", BROKER_PROPERTIES), ("topic", TOPIC_PROPERTIES)])
def test_allowed_values_equal_those_of_kafka(kind, ours):
    anything = (None, "", "non-empty list", "non-null string")
    for name, entry in kafka_definitions(kind).items():
        said = entry["validator"]
        assert kafka_validator_text(ours[name]) == (None if said in anything else said), name


def test_topic_property_takes_its_default_from_the_broker_property_of_kafka():
    for name, entry in kafka_definitions("synonym").items():
        first, *others = entry["broker"]
        assert BROKER_DEFAULTS[name] == first
        assert relatives(first) == (first, *others)
    assert set(BROKER_DEFAULTS) - own_property_names("topic") == set(kafka_definitions("synonym"))


def test_every_default_parses_and_formats_to_the_same_text():
    for entry in (*BROKER_PROPERTIES.values(), *TOPIC_PROPERTIES.values()):
        if entry.default is not None and entry.name not in {"controller.quorum.bootstrap.servers"}:
            assert format_value(entry.parse(entry.default)) == entry.default, entry.name


def test_every_property_is_documented_in_one_sentence():
    for entry in (*BROKER_PROPERTIES.values(), *TOPIC_PROPERTIES.values()):
        assert re.fullmatch(r"\S.*[.]", entry.doc), entry.name


def test_every_configuration_attribute_is_a_property():
    combined = {
        "static",
        "dynamic_default",
        "dynamic_broker",
        "listeners",
        "advertised_listeners",
        "listener_security",
        "authorizer",
        "remote_log_metadata_topic",
    }
    for field in dataclasses.fields(BrokerConfig):
        assert field.name in combined or field.name.replace("_", ".") in BROKER_PROPERTIES
    for field in dataclasses.fields(LogConfig):
        assert field.name.replace("_", ".") in TOPIC_PROPERTIES


def attributes_read(files):
    """Attributes that these modules load, and their texts (getattr, and what housekeeping calls its intervals). A rule
    between properties is no use of them."""
    for file in files:
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == "_check_together":
                node.body = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                yield node.attr
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_every_configuration_attribute_is_read_by_the_broker():
    """Or its property would be accepted as if it had an effect (`BrokerConfig.without_effect`)."""
    package = Path(kafkalog_broker.__file__).parent
    definitions = {"broker_config.py", "broker_properties.py", "combined_properties.py"}
    read = set(attributes_read(file for file in package.rglob("*.py") if file.name not in definitions))
    read |= {f"compression_{codec.label}_level" for codec in KAFKA_CODECS}  # recompression reads them by such a name
    topics = {field.name for field in dataclasses.fields(LogConfig)}
    assert topics - read == set()
    served = served_topic_properties() & BROKER_DEFAULTS.keys()
    defaults = {BROKER_DEFAULTS[name].replace(".", "_") for name in served}
    layers = {"static", "dynamic_default", "dynamic_broker"}
    brokers = {field.name for field in dataclasses.fields(BrokerConfig)} - layers
    checked_together = {"log_cleaner_min_compaction_lag_ms", "log_cleaner_max_compaction_lag_ms"}
    assert brokers - read - defaults - checked_together == set()


# Of the audit of what was accepted in silence, and read by nobody.
SILENT = [
    "log.initial.task.delay.ms",
    "offsets.load.buffer.size",
    "offsets.commit.timeout.ms",
    "offsets.topic.compression.codec",
    "offsets.topic.replication.factor",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
    "unclean.leader.election.enable",
    "group.coordinator.threads",
    "replication.quota.window.num",
]


@pytest.mark.parametrize("name", SILENT)
def test_property_without_effect_is_logged_at_start_and_on_change(name):
    default = str(BROKER_PROPERTIES[name].default)
    assert BrokerConfig.from_properties({"log.dirs": "/x", name: default}).without_effect() == [name]
    assert BrokerConfig.from_properties({"log.dirs": "/x"}).with_dynamic({name: default}, {}).without_effect() == [name]
    assert unserved_note([name, "log.dirs"], served_properties()).endswith(f"without effect in this broker: {name}")


def test_property_with_effect_is_not_listed_as_without_effect():
    served = [
        "log.dir",
        "log.dirs",
        "log.retention.hours",
        "log.retention.minutes",
        "log.retention.ms",
        "log.roll.hours",
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
        "listeners",
        "listener.security.protocol.map",
        "controller.listener.names",
        "broker.id",
        "node.id",
        "num.partitions",
        "log.cleaner.backoff.ms",
        "message.max.bytes",
        "producer.id.expiration.check.interval.ms",
        "offsets.topic.num.partitions",
        "group.max.size",
        "transaction.max.timeout.ms",
    ]
    assert set(served) <= served_properties()
    assert set(REFUSED) <= served_properties()
    assert BrokerConfig.from_properties({**DEFAULTS_WITHOUT_FILE, "log.dirs": "/x"}).without_effect() == []


def test_topic_properties_of_replicas_have_no_effect():
    assert set(TOPIC_PROPERTIES) - served_topic_properties() == {
        "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
        "unclean.leader.election.enable",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (PropertyType.INT, " +7 ", 7),
        (PropertyType.INT, "-2147483648", -(2**31)),
        (PropertyType.LONG, "9223372036854775807", 2**63 - 1),
        (PropertyType.SHORT, "-32768", -32768),
        (PropertyType.BOOLEAN, " True", True),
        (PropertyType.DOUBLE, ".25", 0.25),
        (PropertyType.LIST, " a , b", ("a", "b")),
        (PropertyType.LIST, "  ", ()),
        (PropertyType.STRING, " x ", "x"),
        (PropertyType.PASSWORD, " x ", " x "),
    ],
)
def test_property_texts_are_parsed_as_in_java(kind, text, value):
    assert Property("p", kind, None, None, "").parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (PropertyType.INT, "2147483648"),
        (PropertyType.INT, "1.0"),
        (PropertyType.INT, ""),
        (PropertyType.INT, "1_000"),
        (PropertyType.LONG, "9223372036854775808"),
        (PropertyType.SHORT, "32768"),
        (PropertyType.BOOLEAN, "yes"),
        (PropertyType.DOUBLE, "half"),
    ],
)
def test_text_of_the_wrong_type_is_refused_with_name_and_text(kind, text):
    with pytest.raises(ConfigError) as raised:
        Property("some.name", kind, None, None, "").parse(text)
    assert raised.value.name == "some.name"
    assert f"Invalid value {text} for configuration some.name: ".replace("  ", " ") in str(raised.value)


def test_error_does_not_contain_the_password():
    secret = Property("p", PropertyType.PASSWORD, None, {"not_empty": True}, "")
    with pytest.raises(ConfigError) as raised:
        secret.parse("")
    assert "[hidden]" in str(raised.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e10, "1.0E10"),
        (0.0001, "1.0E-4"),
        (0.5, "0.5"),
        (12.5, "12.5"),
    ],
)
def test_doubles_are_formatted_as_in_java(value, text):
    assert format_value(value) == text


def test_list_with_many_blanks_is_parsed_in_linear_time():
    """They come with requests; to look for a comma after each would take minutes."""
    assert TOPIC_PROPERTIES["cleanup.policy"].parse("delete ,\t" + " " * 500_000 + "compact") == ("delete", "compact")
