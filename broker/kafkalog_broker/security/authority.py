"""A certificate authority for tests: certificates of servers and clients, made on the spot, trusted by nobody else."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = timedelta(days=1)
SLACK = timedelta(hours=1)
"""Certificates begin so much earlier: clocks of a machine and its containers differ."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, as PEM texts. `chain`: the certificate first, then the authority's."""

    chain: str
    key: str = field(repr=False)


class Authority:
    """Keys are on the curve P-256. `certificate`: the authority's own, as a PEM text, for truststores."""

    def __init__(self, name: str = "kafkalog tests") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        made = _builder(self._name, self._name, self._key.public_key(), now - SLACK, now + VALID).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self._own = _with_ids(made, self._key.public_key(), self._key.public_key()).sign(self._key, hashes.SHA256())
        self.certificate = self._own.public_bytes(Encoding.PEM).decode()

    def issue(self, name: str | x509.Name, hosts: Sequence[str] = (), *, ends: datetime | None = None) -> Issued:
        """For a server at `hosts` (names and addresses) and for a client alike. `name`: the common name, or a whole
        distinguished one. `ends`: when it expires, in a day by default."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) if isinstance(name, str) else name
        end = ends or datetime.now(UTC) + VALID
        made = _builder(subject, self._name, key.public_key(), min(datetime.now(UTC), end) - SLACK, end)
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        made = made.add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        if hosts:
            made = made.add_extension(x509.SubjectAlternativeName(list(map(_general_name, hosts))), critical=False)
        made = _with_ids(made, key.public_key(), self._key.public_key())
        certificate = made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return Issued(certificate + self.certificate, text)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number(), begin, end)


def _with_ids(
    made: x509.CertificateBuilder, own: ec.EllipticCurvePublicKey, issuer: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    """Extensions that strict clients ask for (OpenSSL's X509_STRICT, Python's default from 3.13 on)."""
    return made.add_extension(x509.SubjectKeyIdentifier.from_public_key(own), critical=False).add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
