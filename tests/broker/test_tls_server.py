"""A broker with TLS listeners: requests, certificate changes at run time, and unreadable certificates."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.describe_configs.v4 import request as describe
from kio.schema.incremental_alter_configs.v1 import request as alter
from kio.schema.metadata.v12.request import MetadataRequest

from kafkalog_broker.testing import BrokerDied, RunningBroker, running_broker
from kafkalog_broker.testing_support.certificate_authority import IssuedCertificate
from kafkalog_broker.testing_support.client_requests import ask
from tests.broker.security.stores import authority, der, inline, pem_file, pkcs12_file, server

pytestmark = pytest.mark.end_to_end

LISTENERS = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    properties = {**LISTENERS, **pkcs12_file(tmp_path / "server.p12")}
    with running_broker(properties, log_dir=tmp_path / "data") as running:
        yield running


def secured(broker: RunningBroker) -> ssl.SSLSocket:
    """A connection to the listener SSL."""
    context = ssl.create_default_context(cadata=authority().certificate)
    raw = socket.create_connection(("127.0.0.1", broker.ports["SSL"]), 10)
    return context.wrap_socket(raw, server_hostname="localhost")


def described(broker: RunningBroker, name: str) -> str | None:
    resource = describe.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=(name,))  # type: ignore[arg-type]
    answer = broker.ask(describe.DescribeConfigsRequest(resources=(resource,)))
    entries = answer.results[0].configs
    return entries[0].value if entries else None


def altered(broker: RunningBroker, **properties: str) -> tuple[str, str | None]:
    configs = tuple(
        alter.AlterableConfig(name=f"listener.name.ssl.{name}", config_operation=0, value=value)  # type: ignore[arg-type]
        for name, value in properties.items()
    )
    resource = alter.AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)  # type: ignore[arg-type]
    (answer,) = broker.ask(alter.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)).responses
    return answer.error_code.name, answer.error_message


def shown(broker: RunningBroker) -> bytes | None:
    with secured(broker) as connection:
        return connection.getpeercert(binary_form=True)


def metadata() -> MetadataRequest:
    return MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)


def test_metadata_of_each_listener_has_its_own_address(broker: RunningBroker):
    with secured(broker) as connection:
        (node,) = ask(connection, metadata()).brokers
        assert node.port == broker.ports["SSL"]
    (node,) = broker.ask(metadata()).brokers
    assert node.port == broker.ports["PLAINTEXT"]


def test_certificate_changes_while_the_broker_runs(broker: RunningBroker, tmp_path: Path):
    assert shown(broker) == der(server())
    renewed = authority().issue("localhost", ("localhost", "127.0.0.1"))
    new = pkcs12_file(tmp_path / "new.p12", renewed)
    assert altered(broker, **new) == ("none", None)
    assert shown(broker) == der(renewed)

    # The same location again, as kafka-configs is used where only the file is new.
    again = authority().issue("localhost", ("localhost", "127.0.0.1"))
    pkcs12_file(tmp_path / "aside.p12", again)
    os.replace(tmp_path / "aside.p12", tmp_path / "new.p12")
    assert altered(broker, **new) == ("none", None)
    assert shown(broker) == der(again)

    broker.stop()
    broker.start()
    assert shown(broker) == der(again)
    assert "store-password" not in broker.log()


@pytest.mark.parametrize("what", ["password", "name"])
def test_unusable_certificate_changes_nothing(broker: RunningBroker, tmp_path: Path, what: str):
    if what == "password":
        new = {**pkcs12_file(tmp_path / "new.p12"), "ssl.keystore.password": "SECRET"}
        said = "cannot be read as PKCS12"
    else:
        new, said = pkcs12_file(tmp_path / "new.p12", authority().issue("other")), "distinguished name"
    code, text = altered(broker, **new)
    assert (code, said in str(text), "SECRET" in str(text)) == ("invalid_request", True, False)
    assert shown(broker) == der(server())


def test_passwords_are_described_without_their_values(broker: RunningBroker, tmp_path: Path):
    altered(broker, **pkcs12_file(tmp_path / "new.p12"))
    assert described(broker, "listener.name.ssl.ssl.keystore.location") == str(tmp_path / "new.p12")
    for name in ("ssl.keystore.password", "listener.name.ssl.ssl.keystore.password"):
        assert described(broker, name) is None


def other_key() -> IssuedCertificate:
    return IssuedCertificate(server().chain, authority().issue("x").key)


def test_broker_with_an_unreadable_keystore_does_not_start(tmp_path: Path):
    with pytest.raises(BrokerDied, match="listener SSL: the keystore of the properties: the first certificate is not"):
        RunningBroker(tmp_path / "data", {**LISTENERS, **inline(other_key())}).start()
    pem_file(tmp_path / "a.pem")
    properties = {**LISTENERS, "ssl.keystore.location": str(tmp_path / "a.pem"), "ssl.keystore.password": "SECRET"}
    with pytest.raises(BrokerDied, match="cannot be read as JKS") as error:
        RunningBroker(tmp_path / "data", properties).start()
    assert "SECRET" not in str(error.value)
