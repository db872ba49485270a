"""JAAS entries and Kafka's sasl.* properties of listeners, and errors that show no secret."""

from __future__ import annotations

import pytest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.sasl_settings import SaslSettings

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = f'{MODULE} required user_alice="a b" user_bob=c;'
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


def config(**properties: str) -> BrokerConfig:
    given = {name.replace("__", "-").replace("_", "."): text for name, text in properties.items()}
    return made({"sasl.enabled.mechanisms": "PLAIN", JAAS: USERS, **given})


def made(properties: dict[str, str]) -> BrokerConfig:
    return BrokerConfig.from_properties({"log.dirs": "/x", "listeners": "SASL_PLAINTEXT://127.0.0.1:0", **properties})


def sasl(properties: dict[str, str]) -> SaslSettings:
    found = made(properties).listener_security["SASL_PLAINTEXT"].sasl
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text", ["", "x", f"{MODULE} required", f"{MODULE} SECRET;", f'{MODULE} required a="SECRET;',
             f"{MODULE} required SECRET;", f"{MODULE} required a=;", f"{MODULE} required SECRET b c;"],
)  # fmt: skip
def test_invalid_jaas_entry_is_refused_without_being_shown(text: str):
    with pytest.raises(ConfigError) as error:
        made({"sasl.enabled.mechanisms": "PLAIN", JAAS: text})
    assert "plain.sasl.jaas.config" in str(error.value)
    assert "SECRET" not in f"{error.value} {error.value!r}"


def test_hint_about_an_invalid_jaas_entry_names_the_module_of_its_mechanism():
    entry = {"sasl.enabled.mechanisms": "OAUTHBEARER", JAAS.replace(".plain.", ".oauthbearer."): "x"}
    with pytest.raises(ConfigError) as error:
        made(entry)
    assert "OAuthBearerLoginModule required NAME=" in str(error.value)
    with pytest.raises(ConfigError, match='PlainLoginModule required user_NAME="PASSWORD";'):
        made({"sasl.enabled.mechanisms": "PLAIN", JAAS: "x"})


def test_users_mechanisms_and_timeouts_are_set_for_each_listener():
    found = sasl(
        {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            JAAS: USERS,
            "connections.max.reauth.ms": "60000",
            "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms": "5000",
            "listener.name.sasl_plaintext.connection.failed.authentication.delay.ms": "7",
        }
    )
    assert found.mechanisms == ("SCRAM-SHA-512", "PLAIN")
    assert found.plain_users == {"alice": "a b", "bob": "c"}
    assert found.max_reauth_ms == {"SCRAM-SHA-512": 5000, "PLAIN": 60000}
    assert (found.failed_delay_ms, found.max_receive_bytes) == (7, 524288)


def test_text_of_a_configuration_contains_no_password():
    properties = {"sasl.enabled.mechanisms": "PLAIN", JAAS: f'{MODULE} required user_alice="SECRET";'}
    whole = made(properties)
    assert whole.without_effect() == []
    for text in (repr(whole), repr(whole.listener_security), str(whole.listener_security["SASL_PLAINTEXT"].sasl)):
        assert "SECRET" not in text


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({}, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER are served"),  # Kafka's default is GSSAPI
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "are served"),
        ({"sasl.enabled.mechanisms": ""}, "are served"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "the mechanism PLAIN needs its users"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": USERS}, "the mechanism PLAIN needs its users"),
        ({"sasl.enabled.mechanisms": "PLAIN", JAAS: "a.B required;"}, f"expected {MODULE}"),
        (
            {"sasl.enabled.mechanisms": "SCRAM-SHA-256", "sasl.server.callback.handler.class": "a.B"},
            "classes of Java cannot be loaded",
        ),
    ],
)
def test_invalid_sasl_property_is_refused(properties: dict[str, str], said: str):
    with pytest.raises(ConfigError, match=said):
        sasl(properties)
