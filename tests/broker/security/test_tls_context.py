"""SSLContexts from settings: Java's choice of protocols and cipher suites; reloading of certificates."""

from __future__ import annotations

import logging
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.security.tls import Tls
from kafkalog_broker.security.tls_context import openssl_name, tls_context
from kafkalog_broker.testing_support.certificate_authority import IssuedCertificate
from tests.broker.security.stores import authority, config, der, inline, pem_file, server, settings

ALL_1_3 = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"
OF_1_2 = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
    ],
)
def test_cipher_suite_is_mapped_to_its_openssl_name(suite: str, name: str):
    assert openssl_name(suite) == name
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(name)  # raises where OpenSSL does not know it


@pytest.mark.parametrize(
    ("suites", "lowest", "highest"),
    [
        ("", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
        (OF_1_2, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        (ALL_1_3, ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
        (f"{OF_1_2},{ALL_1_3}", ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
    ],
)
def test_cipher_suites_limit_the_protocols(suites: str, lowest: ssl.TLSVersion, highest: ssl.TLSVersion):
    context, _ = tls_context(settings({**inline(), "ssl.cipher.suites": suites}))
    assert (context.minimum_version, context.maximum_version) == (lowest, highest)
    if OF_1_2 in suites:
        older = [one["name"] for one in context.get_ciphers() if one["protocol"] != "TLSv1.3"]
        assert older == ["ECDHE-ECDSA-AES128-GCM-SHA256"]


@pytest.mark.parametrize(
    ("suites", "protocols", "said"),
    [
        ("TLS_NO_WITH_SUCH", "TLSv1.2", "unknown cipher suite"),
        ("HIGH", "TLSv1.2", "unknown cipher suite"),
        (OF_1_2, "TLSv1.3", "none of these suites belongs to TLSv1.3"),
        ("TLS_AES_128_GCM_SHA256", "TLSv1.3", "name all of them"),
    ],
)
def test_unavailable_cipher_suites_are_refused(suites: str, protocols: str, said: str):
    with pytest.raises(ConfigError, match=said):
        tls_context(settings({**inline(), "ssl.cipher.suites": suites, "ssl.enabled.protocols": protocols}))


@pytest.mark.parametrize(
    ("bits", "sha1", "said"),
    [
        (2048, True, r"signed with SHA-1 or MD5, which OpenSSL refuses at security level 2 \(CA_MD_TOO_WEAK\)"),
        (1024, False, r"its key is too short, which OpenSSL refuses at security level 2 \(EE_KEY_TOO_SMALL\)"),
    ],
)
def test_certificate_too_weak_for_openssl_is_refused_with_the_reason(bits: int, sha1: bool, said: str):
    with pytest.raises(ConfigError, match=said) as refused:
        tls_context(settings(inline(weak(bits, sha1=sha1))))
    assert "CN=old.example.org" in str(refused.value)
    assert "issue a new one, signed with SHA-256" in str(refused.value)


def weak(bits: int, *, sha1: bool) -> IssuedCertificate:
    """Certificate of an RSA key that another key has signed. sha1: it says so; the signature is not one of SHA-1, which
    cryptography does not make, but nobody checks the signature of a certificate that is loaded."""
    key = rsa.generate_private_key(65537, bits)
    subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("old.example.org", "ca"))
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(issuer, subject, key.public_key(), 1, now, now + timedelta(days=1))
    chain = made.sign(rsa.generate_private_key(65537, 2048), hashes.SHA256()).public_bytes(Encoding.DER)
    if sha1:
        of_sha256, of_sha1 = (bytes.fromhex("2a864886f70d0101") + last for last in (b"\x0b", b"\x05"))
        chain = chain.replace(of_sha256, of_sha1)  # sha256WithRSAEncryption, sha1WithRSAEncryption
    pem = x509.load_der_x509_certificate(chain).public_bytes(Encoding.PEM).decode()
    return IssuedCertificate(pem, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


def test_no_temporary_key_file_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    tls_context(settings(inline()))
    assert list(tmp_path.iterdir()) == []


# ---- certificates that change


def replaced(path: Path, issued: IssuedCertificate) -> None:
    aside = path.with_suffix(".new")
    pem_file(aside, issued)
    os.replace(aside, path)


def used(tls: Tls) -> x509.Certificate:
    return tls.for_listener("SSL").identity.chain[0]


def first(issued: IssuedCertificate) -> x509.Certificate:
    return x509.load_pem_x509_certificates(issued.chain.encode())[0]


def started(properties: dict[str, str]) -> Tls:
    tls = Tls()
    tls.use(tls.prepare(config(properties).listener_security))
    return tls


def test_changed_keystore_file_is_reloaded(tmp_path: Path):
    path = tmp_path / "a.pem"
    tls = started(pem_file(path))
    assert tls.changed_files() is None
    renewed = authority().issue("localhost", ("localhost", "127.0.0.1"))
    replaced(path, renewed)
    changed = tls.changed_files()
    assert changed is not None
    assert used(tls) == first(server())  # until it is used
    tls.use(changed)
    assert used(tls) == first(renewed)
    assert tls.changed_files() is None


def test_damaged_certificate_file_is_logged_once_and_the_old_certificate_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "a.pem"
    tls = started(pem_file(path))
    path.write_text("half of i")
    with caplog.at_level(logging.ERROR):
        assert tls.changed_files() is None
        assert tls.changed_files() is None
    assert [record.message.partition(" cannot be read")[0] for record in caplog.records] == [
        f"listener SSL keeps its old certificate: the keystore {path}"
    ]
    renewed = authority().issue("localhost", ("localhost", "127.0.0.1", "more"))
    replaced(path, renewed)
    changed = tls.changed_files()
    assert changed is not None
    tls.use(changed)
    assert used(tls) == first(renewed)


@pytest.mark.parametrize(
    ("name", "hosts", "allow", "said"),
    [
        ("other", ("localhost", "127.0.0.1"), "ssl.allow.dn.changes", "distinguished name"),
        ("localhost", ("localhost",), "ssl.allow.san.changes", "subject alternative names of the old one: 127.0.0.1"),
    ],
)
def test_changed_names_of_a_certificate_are_accepted_only_if_allowed(
    tmp_path: Path, name: str, hosts: tuple[str, ...], allow: str, said: str
):
    path = tmp_path / "a.pem"
    for allowed in (False, True):
        pem_file(path)
        properties = {**pem_file(path), allow: str(allowed).lower()}
        tls = started(properties)
        replaced(path, authority().issue(name, hosts))
        if allowed:
            assert tls.prepare(config(properties).listener_security)["SSL"] is not tls.for_listener("SSL")
        else:
            with pytest.raises(ConfigError, match=said):
                tls.prepare(config(properties).listener_security)


def test_principal_is_mapped_from_the_certificate():
    whole = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example"), x509.NameAttribute(NameOID.COMMON_NAME, "alice")]
    )
    tls = started({**inline(), "ssl.principal.mapping.rules": "RULE:^CN=([^,]*),O=Example$/$1/U,DEFAULT"}).for_listener(
        "SSL"
    )
    ends = datetime.now(UTC) + timedelta(days=3)
    for name, principal in ((whole, "User:ALICE"), ("bob", "User:CN=bob")):
        assert tls.principal(der(authority().issue(name, expires_at=ends))) == principal
    assert tls.principal(None) == "User:ANONYMOUS"
