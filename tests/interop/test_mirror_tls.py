"""A mirror of a real Kafka that wants TLS and a password, by librdkafka's property names."""

from __future__ import annotations

import datetime
import ipaddress
import socket
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from kafkalog_broker.mirror.client_properties import client_settings
from tests.broker.mirror.helpers.mirrors import MirrorProcess, log_data, mirror_once
from tests.interop.real_kafka import RealKafka, available
from tests.interop.test_mirror import send

pytestmark = [pytest.mark.skipif(available() is not None, reason=str(available())), pytest.mark.timeout(300)]


def certificate(directory: Path) -> tuple[Path, Path]:
    """(key and certificate of a broker on 127.0.0.1, the certificate alone), PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kafka")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both, alone = directory / "broker.pem", directory / "ca.pem"
    both.write_bytes(private + public)
    alone.write_bytes(public)
    return both, alone


def test_tls_and_a_password(tmp_path: Path) -> None:
    both, ca = certificate(tmp_path)
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    plain, controller, secure = (one.getsockname()[1] for one in sockets)
    for one in sockets:
        one.close()
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    kafka = RealKafka(
        tmp_path / "kafka",
        {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},"
            f"SECURE://127.0.0.1:{secure}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secure.plain.sasl.jaas.config": f'{login} required user_mirror="a secret";',
            "listener.name.secure.ssl.keystore.type": "PEM",
            "listener.name.secure.ssl.keystore.location": both,
        },
        short_lived=True,
    )
    with kafka:
        kafka._ports = (plain, controller)
        kafka.create_topic("orders")
        send(kafka.bootstrap, "orders", 500)
        common = ["security.protocol=sasl_ssl", "sasl.mechanism=PLAIN", "sasl.username=mirror"]
        settings = client_settings([*common, "sasl.password=a secret", f"ssl.ca.location={ca}"])
        mirror_once(f"127.0.0.1:{secure}", tmp_path / "mirror", settings=settings)
        assert log_data(tmp_path / "mirror", "orders") == log_data(kafka.data_dir, "orders")
        for wrong, says in (
            (["sasl.password=another", f"ssl.ca.location={ca}"], "Authentication failed"),
            (["sasl.password=a secret"], "CERTIFICATE_VERIFY_FAILED"),
        ):
            arguments = [part for text in [*common, *wrong] for part in ("-X", text)]
            with MirrorProcess(f"127.0.0.1:{secure}", tmp_path / f"wrong{len(wrong)}", *arguments) as running:
                while says.casefold() not in running.log().casefold():
                    assert running.is_running
                assert running.stop() == 0
            assert "another" not in running.log()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(tmp_path: Path, mechanism: str) -> None:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    plain, controller, secure = (one.getsockname()[1] for one in sockets)
    for one in sockets:
        one.close()
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    kafka = RealKafka(
        tmp_path / "kafka",
        {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},"
            f"SECURE://127.0.0.1:{secure}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.name.secure.sasl.enabled.mechanisms": mechanism,
            f"listener.name.secure.{mechanism.lower()}.sasl.jaas.config": f"{login} required;",
        },
        short_lived=True,
    )
    with kafka:
        kafka._ports = (plain, controller)
        kafka.create_topic("orders")
        send(kafka.bootstrap, "orders", 500)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        kind = ScramMechanism.SCRAM_SHA_256 if mechanism.endswith("256") else ScramMechanism.SCRAM_SHA_512
        user = UserScramCredentialUpsertion("mirror", ScramCredentialInfo(kind, 4096), b"a secret")
        admin.alter_user_scram_credentials([user])["mirror"].result(60)
        common = ["security.protocol=sasl_plaintext", f"sasl.mechanism={mechanism}", "sasl.username=mirror"]
        settings = client_settings([*common, "sasl.password=a secret"])
        mirror_once(f"127.0.0.1:{secure}", tmp_path / "mirror", settings=settings)
        assert log_data(tmp_path / "mirror", "orders") == log_data(kafka.data_dir, "orders")
