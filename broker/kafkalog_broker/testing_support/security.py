"""The security of a broker for tests: its properties, and what clients need to get in. Certificates are made here."""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import secrets
import ssl
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kafkalog_broker.config.listener_security import SASL_PROTOCOLS, TLS_PROTOCOLS
from kafkalog_broker.config.sasl_settings import OAUTHBEARER, PLAIN, PLAIN_MODULE, SCRAM
from kafkalog_broker.security.scram import MIN_ITERATIONS, salted

ADMIN = "kafkalog-testing"  # principal of the broker's own helpers: `create_topic`, `ask`

HOSTS = ("localhost", "127.0.0.1")
ISSUER, AUDIENCE = "https://issuer.example", "kafkalog"  # audience of tokens
TOKEN_S = 3600.0


class SecurityForTests:
    """Listener of `protocol`: SSL, SASL_PLAINTEXT or SASL_SSL. users: name to password.

    With SASL each of them may use PLAIN, both kinds of SCRAM, and tokens of OAUTHBEARER. With SSL alone each has a
    certificate, without which nobody is let in; the principal is `User:NAME` everywhere. SSL without users asks for no
    certificate.
    """

    def __init__(self, protocol: str, users: Mapping[str, str] | None = None) -> None:
        if protocol not in (*TLS_PROTOCOLS, *SASL_PROTOCOLS):
            raise ValueError(f"security is one of SSL, SASL_PLAINTEXT and SASL_SSL, not {protocol!r}")
        if protocol in SASL_PROTOCOLS and not users:
            raise ValueError(f'with {protocol} there must be users, e.g. users={{"alice": "secret"}}')
        if ADMIN in (users or {}):
            raise ValueError(f"the user {ADMIN} is the broker's own")
        self.protocol = protocol
        self.users = dict(users or {})
        self._admin_password = secrets.token_hex(16)
        self._authority = Authority()
        self.certificate = self._authority.certificate
        """The authority that clients are to trust, as a PEM text."""
        self._issued = cache(self._authority.issue)
        self._server = self._authority.issue(HOSTS[0], HOSTS)

    def properties(self) -> dict[str, str]:
        """Properties of the broker, without its listeners."""
        found: dict[str, str] = {}
        if self.protocol in TLS_PROTOCOLS:
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": self._server.key,
                "ssl.keystore.certificate.chain": self._server.chain,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": self.certificate,
                "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
            }
        if self._certificates_wanted:
            found["ssl.client.auth"] = "required"
        if self.protocol in SASL_PROTOCOLS:
            known = {**self.users, ADMIN: self._admin_password}
            options = " ".join(f"user_{name}={_quoted(password)}" for name, password in known.items())
            found |= {
                "sasl.enabled.mechanisms": ",".join((PLAIN, *SCRAM, OAUTHBEARER)),
                "sasl.oauthbearer.jwks.endpoint.url": f"file://{self._tokens.jwks}",
                "sasl.oauthbearer.expected.issuer": ISSUER,
                "sasl.oauthbearer.expected.audience": AUDIENCE,
                f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {options};",
            }
        return found

    def scram_users(self) -> list[str]:
        """For --add-scram."""
        if self.protocol not in SASL_PROTOCOLS:
            return []
        return [_add_scram(mechanism, *user) for mechanism in SCRAM for user in self.users.items()]

    def client(self, user: str | None = None, mechanism: str = PLAIN) -> dict[str, Any]:
        """Configuration of librdkafka (confluent-kafka) besides `bootstrap.servers`. user: the first one by default.
        Raises KeyError for one that is not there."""
        found: dict[str, Any] = {"security.protocol": self.protocol}
        if self.protocol in TLS_PROTOCOLS:
            found["ssl.ca.pem"] = self.certificate
        if self._certificates_wanted:
            own = self.issued(self._name(user))
            found |= {"ssl.certificate.pem": own.chain, "ssl.key.pem": own.key}
        if self.protocol in SASL_PROTOCOLS:
            name = self._name(user)
            found["sasl.mechanism"] = mechanism
            if mechanism == OAUTHBEARER:
                self.password(name)
                found["oauth_cb"] = lambda config: (self.token(name), time.time() + TOKEN_S)
            else:
                found |= {"sasl.username": name, "sasl.password": self.password(name)}
        return found

    def ssl_context(self, user: str | None = None) -> ssl.SSLContext | None:
        """For clients that take one (kafka-python, aiokafka) and for plain sockets; None without TLS."""
        if self.protocol not in TLS_PROTOCOLS:
            return None
        context = ssl.create_default_context(cadata=self.certificate)
        if self._certificates_wanted:
            own = self.issued(self._name(user))
            with tempfile.NamedTemporaryFile("w") as file:  # Python takes a key from a file only
                file.write(own.key + own.chain)
                file.flush()
                context.load_cert_chain(file.name)
        return context

    def token(self, user: str | None = None, seconds: float = TOKEN_S, **claims: Any) -> str:
        """A token of OAUTHBEARER that holds so long. claims: others than usual; None: without that one."""
        now = time.time()
        usual = {"sub": self._name(user), "iss": ISSUER, "aud": AUDIENCE, "iat": int(now), "exp": now + seconds}
        return self._tokens.signed({**usual, **claims})

    @cached_property
    def _tokens(self) -> _SignedTokens:
        return _SignedTokens()

    def issued(self, user: str) -> Issued:
        """The certificate of a user, and its key."""
        if user != ADMIN:
            self.password(user)
        return self._issued(user)

    def password(self, user: str) -> str:
        """Raises KeyError for a user that is not there."""
        return self._admin_password if user == ADMIN else self.users[user]

    @property
    def has_sasl(self) -> bool:
        return self.protocol in SASL_PROTOCOLS

    @property
    def _certificates_wanted(self) -> bool:
        return self.protocol == "SSL" and bool(self.users)

    def _name(self, user: str | None) -> str:
        return next(iter(self.users)) if user is None else user


class _SignedTokens:
    """A key for tokens. `jwks`: the path of a file with its public half, there as long as this is."""

    def __init__(self) -> None:
        from joserfc.jwk import ECKey

        self._key = ECKey.generate_key("P-256", auto_kid=True)
        descriptor, self.jwks = tempfile.mkstemp(suffix=".jwks.json")
        weakref.finalize(self, os.unlink, self.jwks)
        with open(descriptor, "w", encoding="ascii") as file:
            json.dump({"keys": [self._key.as_dict(private=False)]}, file)

    def signed(self, claims: Mapping[str, Any]) -> str:
        from joserfc import jwt

        present = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode({"alg": "ES256", "kid": self._key.kid}, present, self._key)


def _add_scram(mechanism: str, name: str, password: str) -> str:
    """Salted, so that any password can be written."""
    salt = secrets.token_bytes(16)
    key = salted(mechanism, password, salt, MIN_ITERATIONS)
    return f'{mechanism}=[name="{name}",salt={_base64(salt)},saltedpassword={_base64(key)}]'


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


VALID = timedelta(days=1)
SLACK = timedelta(hours=1)  # certificates begin so much earlier: clocks of a machine and its containers differ


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, as PEM texts. `chain`: the certificate first, then the authority's."""

    chain: str
    key: str = field(repr=False)


class Authority:
    """Certificate authority that only tests trust, with keys on the curve P-256. `certificate`: its own, as PEM."""

    def __init__(self, name: str = "kafkalog tests") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(name)
        self.certificate = self._signed(self._name, self._key, datetime.now(UTC) + VALID, (), is_authority=True)

    def issue(self, name: str | x509.Name, hosts: Sequence[str] = (), *, ends: datetime | None = None) -> Issued:
        """For a server at `hosts` (names and addresses) and for a client alike. `name`: the common name, or a whole
        distinguished one. `ends`: when it expires, in a day by default."""
        key = ec.generate_private_key(ec.SECP256R1())
        extensions: list[x509.ExtensionType] = [x509.ExtendedKeyUsage(_USES)]
        if hosts:
            extensions.append(x509.SubjectAlternativeName(list(map(_general_name, hosts))))
        subject = _common_name(name) if isinstance(name, str) else name
        certificate = self._signed(subject, key, ends or datetime.now(UTC) + VALID, extensions)
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return Issued(certificate + self.certificate, text)

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, end: datetime,
        extensions: Sequence[x509.ExtensionType], *, is_authority: bool = False,
    ) -> str:  # fmt: skip
        own, number, begin = key.public_key(), x509.random_serial_number(), min(datetime.now(UTC), end) - SLACK
        made = x509.CertificateBuilder(self._name, subject, own, number, begin, end)
        made = made.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        # Strict clients ask for the ids (OpenSSL's X509_STRICT, Python's default from 3.13 on).
        ids = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        for extension in (*extensions, x509.SubjectKeyIdentifier.from_public_key(own), ids):
            made = made.add_extension(extension, critical=False)
        return made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


_USES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
