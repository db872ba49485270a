"""Kafka's ssl.* properties: those of each listener, and invalid ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafkalog_broker.admin.config_entries import broker_entries
from kafkalog_broker.config.definition import ConfigError
from tests.broker.security.stores import config, inline, settings


def test_property_of_a_listener_overrides_the_general_one():
    made = config(
        {
            **inline(),
            "listeners": "SSL://127.0.0.1:0,INNER://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "listener.security.protocol.map": "SSL:SSL,INNER:SSL,PLAINTEXT:PLAINTEXT",
            "ssl.client.auth": "requested",
            "listener.name.inner.ssl.client.auth": "required",
            "listener.name.inner.ssl.enabled.protocols": "TLSv1.3",
        }
    )
    outer, inner, plain = (made.listener_security[name] for name in ("SSL", "INNER", "PLAINTEXT"))
    assert outer.tls is not None
    assert inner.tls is not None
    assert (outer.tls.client_auth, outer.tls.protocols) == ("requested", ("TLSv1.2", "TLSv1.3"))
    assert (inner.tls.client_auth, inner.tls.protocols) == ("required", ("TLSv1.3",))
    assert inner.tls.keystore == outer.tls.keystore
    assert (plain.protocol, plain.tls) == ("PLAINTEXT", None)
    assert made.without_effect() == []


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({}, "needs a certificate"),
        ({"ssl.keystore.location": "/x"}, "SSL key store is specified, but key store password is not specified."),
        ({"ssl.keystore.password": "x"}, "SSL key store is not specified, but key store password is specified."),
        ({"ssl.keystore.key": "x"}, "can be specified only for PEM, but key store type is JKS."),
        ({"ssl.keystore.certificate.chain": "x"}, "certificate chain is specified, but private key is not specified"),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.key": "x"},
            "SSL private key is specified, but certificate chain is not specified.",
        ),
        ({**inline(), "ssl.keystore.location": "/x"}, "Both SSL key store location and separate private key"),
        ({**inline(), "ssl.keystore.password": "x"}, "password cannot be specified with PEM format"),
        ({**inline(), "ssl.truststore.location": "/x"}, "Both SSL trust store location and separate trust"),
        ({**inline(), "ssl.truststore.type": "JKS"}, "trust store certs can be specified only for PEM"),
        ({**inline(), "ssl.truststore.password": "x"}, "trust store password cannot be specified for PEM format."),
        ({**inline(), "ssl.keystore.type": "BCFKS"}, "one of PEM, PKCS12, JKS"),
        ({**inline(), "ssl.client.auth": "perhaps"}, "String must be one of: required, requested, none"),
        ({**inline(), "ssl.enabled.protocols": "TLSv1.1"}, "none of them is supported"),
        ({**inline(), "ssl.enabled.protocols": "TLSv1.4"}, "TLSv1.2 and TLSv1.3 are supported"),
        ({**inline(), "ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLSv1.2"}, "none of them is supported"),
        ({**inline(), "ssl.protocol": "TLSv1.4"}, "TLSv1.2, TLSv1.3 and TLS are supported"),
        ({**inline(), "ssl.protocol": "TLSv12"}, "TLSv1.2, TLSv1.3 and TLS are supported"),
        ({**inline(), "ssl.protocol": "TLSv1.1"}, "TLSv1.2, TLSv1.3 and TLS are supported"),
        ({**inline(), "ssl.engine.factory.class": "a.B"}, "classes of Java cannot be loaded"),
    ],
)
def test_invalid_ssl_property_is_refused_with_the_listener_and_message_of_kafka(properties: dict[str, str], said: str):
    with pytest.raises(ConfigError) as error:
        settings(properties)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"ssl.keystore.password": "x"}, "ssl.keystore.password"),
        ({**inline(), "ssl.keystore.password": "x"}, "ssl.keystore.password"),
        ({**inline(), "ssl.truststore.password": "x"}, "ssl.truststore.password"),
        (
            {"ssl.keystore.location": "/x", "ssl.keystore.password": "x", "ssl.truststore.password": "x"},
            "ssl.truststore.password",
        ),
    ],
)
def test_error_about_a_store_password_names_the_property_of_the_password(properties: dict[str, str], name: str):
    with pytest.raises(ConfigError) as error:
        settings(properties)
    assert error.value.name is not None
    assert error.value.name.endswith(name)


@pytest.mark.parametrize(
    ("enabled", "highest", "left"),
    [
        ("TLSv1.2,TLSv1.1,TLSv1", "TLSv1.3", ("TLSv1.2",)),
        ("TLSv1.3,TLSv1.2", "TLSv1.2", ("TLSv1.2",)),
        ("TLSv1.3", "TLSv1.3", ("TLSv1.3",)),
    ],
)
def test_protocols_disabled_in_java_are_ignored(enabled: str, highest: str, left: tuple[str, ...]):
    found = settings({**inline(), "ssl.enabled.protocols": enabled, "ssl.protocol": highest})
    assert found.protocols == left


@pytest.mark.parametrize(
    ("protocol", "versions"),
    [
        ("TLS", ("TLSv1.2", "TLSv1.3")),
        ("SSL", ("TLSv1.2", "TLSv1.3")),
        ("tlsv1.3", ("TLSv1.2", "TLSv1.3")),
        ("tlsv1.2", ("TLSv1.2",)),
    ],
)
def test_protocol_that_java_accepts_limits_the_versions(protocol: str, versions: tuple[str, ...]):
    assert settings({**inline(), "ssl.protocol": protocol}).protocols == versions


def test_text_of_settings_and_errors_contains_no_secret():
    secrets = {"ssl.keystore.key": "KEYSECRET", "ssl.key.password": "PASSSECRET"}
    made = config({**inline(), **secrets, "listener.name.ssl.ssl.key.password": "OWNSECRET"})
    for text in (repr(made), repr(made.listener_security), repr(made.listener_security["SSL"].tls)):
        assert "SECRET" not in text
    with pytest.raises(ConfigError) as error:
        settings({**secrets, "ssl.keystore.type": "JKS"})
    assert "SECRET" not in f"{error.value!r} {error.value}"


def test_password_of_a_listener_is_described_without_its_value():
    name = "listener.name.ssl.ssl.key.password"
    made = config({**inline(), "ssl.key.password": "for all", name: "its own"})
    assert made.listener_properties() == [name]
    entry = broker_entries(SimpleNamespace(config=made))[-1]  # type: ignore[arg-type]
    assert (entry.name, entry.value, entry.is_sensitive, entry.read_only) == (name, None, True, True)
    assert entry.synonyms == ((name, None, 4), ("ssl.key.password", None, 4))
