"""A certificate authority for tests; nothing else trusts it."""

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

LIFETIME = timedelta(days=1)
CLOCK_SKEW = timedelta(hours=1)
"""Certificates are backdated by this much, because the clocks of containers may differ."""
_USES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate and its key, in PEM format.

    Attributes:
        chain: The certificate, then that of the authority.
    """

    chain: str
    key: str = field(repr=False)


class Authority:
    """Certificate authority with keys on the curve P-256.

    Attributes:
        certificate: Its own certificate, in PEM format.
    """

    def __init__(self, name: str = "kafkalog tests") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(name)
        self.certificate = self._signed(self._name, self._key, datetime.now(UTC) + LIFETIME, (), is_authority=True)

    def issue(
        self, name: str | x509.Name, hosts: Sequence[str] = (), *, expires_at: datetime | None = None
    ) -> IssuedCertificate:
        """Issue a certificate that a server or a client can use.

        Args:
            name: Common name, or a whole distinguished name.
            hosts: Names and addresses of the server.
            expires_at: When it expires; in a day by default.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        extensions: list[x509.ExtensionType] = [x509.ExtendedKeyUsage(_USES)]
        if hosts:
            extensions.append(x509.SubjectAlternativeName(list(map(_general_name, hosts))))
        subject = _common_name(name) if isinstance(name, str) else name
        certificate = self._signed(subject, key, expires_at or datetime.now(UTC) + LIFETIME, extensions)
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return IssuedCertificate(certificate + self.certificate, text)

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, expires_at: datetime,
        extensions: Sequence[x509.ExtensionType], *, is_authority: bool = False,
    ) -> str:  # fmt: skip
        public_key = key.public_key()
        serial_number = x509.random_serial_number()
        begin = min(datetime.now(UTC), expires_at) - CLOCK_SKEW
        builder = x509.CertificateBuilder(self._name, subject, public_key, serial_number, begin, expires_at)
        builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(is_authority=is_authority), critical=True)
        # Strict clients require key usage and key identifiers (OpenSSL's X509_STRICT, Python's default since 3.13).
        ids = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        for extension in (*extensions, x509.SubjectKeyIdentifier.from_public_key(public_key), ids):
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    """An authority signs certificates and revocation lists; a server or client signs handshakes."""
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
