"""Keystores and truststores in files and in properties, and errors for unreadable ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cryptography import x509

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.tls_settings import Store
from kafkalog_broker.security.keystore import load_authorities, load_identity
from tests.broker.security.stores import (
    PASSWORD,
    authority,
    encrypted_key,
    inline,
    pem_file,
    pkcs12_file,
    server,
    settings,
)


def chain_of(properties: dict[str, str]) -> list[x509.Certificate]:
    found = load_identity(settings(properties).keystore)
    assert found.key.public_key() == found.chain[0].public_key()
    return list(found.chain)


def test_inline_pem_pem_files_and_pkcs12_give_the_same_identity(tmp_path: Path):
    wanted = x509.load_pem_x509_certificates(server().chain.encode())
    java_type = {**pkcs12_file(tmp_path / "c.p12"), "ssl.keystore.type": "JKS"}
    locked = {**inline(), "ssl.keystore.key": encrypted_key(server()), "ssl.key.password": PASSWORD}
    one_line = {name: value.replace("\n", " ") for name, value in inline().items()}
    one_line = {**one_line, "ssl.keystore.key": server().key}
    for properties in (inline(), locked, pem_file(tmp_path / "b.pem"), pkcs12_file(tmp_path / "a.p12"), java_type):
        assert chain_of(properties) == wanted


def test_truststore_may_be_pem_or_pkcs12(tmp_path: Path):
    path = tmp_path / "trust.p12"
    pkcs12_file(path)
    own = x509.load_pem_x509_certificate(authority().certificate.encode())
    assert load_authorities(Store("truststore", "PEM", None, None, authority().certificate)) == [own]
    assert own in load_authorities(Store("truststore", "PKCS12", str(path), PASSWORD))


def test_java_keystore_is_refused_with_the_command_that_converts_it(tmp_path: Path):
    path = tmp_path / "server.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    with pytest.raises(ConfigError) as error:
        load_identity(Store("keystore", "JKS", str(path), "x"))
    assert f"keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12" in str(
        error.value
    )


@pytest.mark.parametrize("damage", ["password", "cut", "text", "missing", "other key"])
def test_unreadable_keystore_error_names_the_file_and_no_secret(tmp_path: Path, damage: str):
    path = tmp_path / "a.store"
    store = settings(pkcs12_file(path)).keystore
    if damage == "password":
        store = Store("keystore", "PKCS12", str(path), "WRONGSECRET")
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:300])
    elif damage == "text":
        path.write_text("SECRET is no PEM")
        store = Store("keystore", "PEM", str(path), None)
    elif damage == "missing":
        path.unlink()
    else:
        path.write_text(authority().issue("other").key + server().chain)
        store = Store("keystore", "PEM", str(path), None)
    with pytest.raises(ConfigError) as error:
        load_identity(store)
    assert str(path) in str(error.value)
    assert "SECRET" not in str(error.value)


def test_pkcs12_written_by_openssl_is_read(tmp_path: Path):
    """The file is written by another library than the one that reads it."""
    pem_file(tmp_path / "a.pem")
    path = tmp_path / "a.p12"
    command = [
        "openssl",
        "pkcs12",
        "-export",
        "-in",
        str(tmp_path / "a.pem"),
        "-out",
        str(path),
        "-passout",
        f"pass:{PASSWORD}",
    ]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl command")
    found = load_identity(Store("keystore", "PKCS12", str(path), PASSWORD))
    assert list(found.chain) == x509.load_pem_x509_certificates(server().chain.encode())
