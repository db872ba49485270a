"""A mirror of a real Kafka that requires TLS and a password, configured with librdkafka's properties."""

from __future__ import annotations

import datetime
import ipaddress
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
from tests.interop.test_mirror import send, until

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))


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


def test_mirror_over_tls_with_a_password_copies_the_log(tmp_path: Path) -> None:
    both, ca = certificate(tmp_path)
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{login} required user_mirror="a secret";',
        "listener.name.sasl_ssl.ssl.keystore.type": "PEM",
        "listener.name.sasl_ssl.ssl.keystore.location": both,
    }
    with RealKafka(tmp_path / "kafka", properties, short_lived=True, secured="SASL_SSL") as kafka:
        secure = f"127.0.0.1:{kafka.secured_port}"
        kafka.create_topic("orders")
        send(kafka.bootstrap, "orders", 500)
        common = ["security.protocol=sasl_ssl", "sasl.mechanism=PLAIN", "sasl.username=mirror"]
        settings = client_settings([*common, "sasl.password=a secret", f"ssl.ca.location={ca}"])
        mirror_once(secure, tmp_path / "mirror", settings=settings)
        assert log_data(tmp_path / "mirror", "orders") == log_data(kafka.data_dir, "orders")
        for wrong, says in (
            (["sasl.password=another", f"ssl.ca.location={ca}"], "Authentication failed"),
            (["sasl.password=a secret"], "CERTIFICATE_VERIFY_FAILED"),
        ):
            arguments = [part for text in [*common, *wrong] for part in ("-X", text)]
            with MirrorProcess(secure, tmp_path / f"wrong{len(wrong)}", *arguments) as running:
                until(lambda: not running.is_running or says.casefold() in running.log().casefold())  # noqa: B023
                assert says.casefold() in running.log().casefold()
                assert running.stop() == 0
            assert "another" not in running.log()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_mirror_with_scram_copies_the_log(tmp_path: Path, mechanism: str) -> None:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    properties = {
        "sasl.enabled.mechanisms": mechanism,
        f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config": f"{login} required;",
    }
    with RealKafka(tmp_path / "kafka", properties, short_lived=True, secured="SASL_PLAINTEXT") as kafka:
        secure = f"127.0.0.1:{kafka.secured_port}"
        kafka.create_topic("orders")
        send(kafka.bootstrap, "orders", 500)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        kind = ScramMechanism.SCRAM_SHA_256 if mechanism.endswith("256") else ScramMechanism.SCRAM_SHA_512
        user = UserScramCredentialUpsertion("mirror", ScramCredentialInfo(kind, 4096), b"a secret")
        admin.alter_user_scram_credentials([user])["mirror"].result(60)
        common = ["security.protocol=sasl_plaintext", f"sasl.mechanism={mechanism}", "sasl.username=mirror"]
        told = [*common, "sasl.password=a secret"]
        as_user = AdminClient(dict(text.split("=") for text in [f"bootstrap.servers={secure}", *told]))
        as_user.list_topics(timeout=120)  # once the broker has learnt of the user
        settings = client_settings(told)
        mirror_once(secure, tmp_path / "mirror", settings=settings)
        assert log_data(tmp_path / "mirror", "orders") == log_data(kafka.data_dir, "orders")
