"""Security of a broker for tests: properties of the broker, and settings of its clients."""

from __future__ import annotations

import base64
import secrets
import ssl
import tempfile
import time
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

from kafkalog_broker.config.listener_security import SASL_PROTOCOLS, TLS_PROTOCOLS
from kafkalog_broker.config.sasl_settings import OAUTHBEARER, PLAIN, PLAIN_MODULE, SCRAM_MECHANISMS
from kafkalog_broker.security.scram import MIN_ITERATIONS, salt_password
from kafkalog_broker.testing_support.certificate_authority import Authority, IssuedCertificate
from kafkalog_broker.testing_support.signed_tokens import SignedTokens

ADMIN = "kafkalog-testing"  # user of the test helpers, such as `create_topic` and `ask`

HOSTS = ("localhost", "127.0.0.1")
ISSUER, AUDIENCE = "https://issuer.example", "kafkalog"  # audience of tokens
TOKEN_LIFETIME_S = 3600.0


class SecurityForTests:
    """Security of a listener and its users.

    With SASL, users may authenticate by PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER. With SSL, each user has a
    certificate, which the broker requires; without users, it requires none. The principal is always `User:NAME`.

    Args:
        protocol: SSL, SASL_PLAINTEXT or SASL_SSL.
        users: Passwords by user name.
    """

    def __init__(self, protocol: str, users: Mapping[str, str] | None = None) -> None:
        if protocol not in (*TLS_PROTOCOLS, *SASL_PROTOCOLS):
            raise ValueError(f"security is one of SSL, SASL_PLAINTEXT and SASL_SSL, not {protocol!r}")
        if protocol in SASL_PROTOCOLS and not users:
            raise ValueError(f'{protocol} needs users, e.g. users={{"alice": "secret"}}')
        if ADMIN in (users or {}):
            raise ValueError(f"the user name {ADMIN} is reserved for the test helpers")
        self.protocol = protocol
        self.users = dict(users or {})
        self._admin_password = secrets.token_hex(16)
        self._authority = Authority()
        self.certificate = self._authority.certificate
        """Certificate of the authority that clients must trust, in PEM format."""
        self._issued = cache(self._authority.issue)
        self._server = self._authority.issue(HOSTS[0], HOSTS)

    def properties(self) -> dict[str, str]:
        """Return the properties of the broker, except its listeners."""
        properties: dict[str, str] = {}
        if self.protocol in TLS_PROTOCOLS:
            properties |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": self._server.key,
                "ssl.keystore.certificate.chain": self._server.chain,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": self.certificate,
                "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
            }
        if self._requires_certificates:
            properties["ssl.client.auth"] = "required"
        if self.protocol in SASL_PROTOCOLS:
            known = {**self.users, ADMIN: self._admin_password}
            options = " ".join(f"user_{name}={_quoted(password)}" for name, password in known.items())
            properties |= {
                "sasl.enabled.mechanisms": ",".join((PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)),
                "sasl.oauthbearer.jwks.endpoint.url": f"file://{self._tokens.jwks}",
                "sasl.oauthbearer.expected.issuer": ISSUER,
                "sasl.oauthbearer.expected.audience": AUDIENCE,
                f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {options};",
            }
        return properties

    def scram_users(self) -> list[str]:
        """Return the values of --add-scram."""
        if self.protocol not in SASL_PROTOCOLS:
            return []
        return [_add_scram(mechanism, *user) for mechanism in SCRAM_MECHANISMS for user in self.users.items()]

    def client(self, user: str | None = None, mechanism: str = PLAIN) -> dict[str, Any]:
        """Return the security settings of a client of librdkafka (confluent-kafka).

        Args:
            user: Name of the user; the first one by default.
            mechanism: SASL mechanism.

        Raises:
            KeyError: If there is no such user.
        """
        settings: dict[str, Any] = {"security.protocol": self.protocol}
        if self.protocol in TLS_PROTOCOLS:
            settings["ssl.ca.pem"] = self.certificate
        if self._requires_certificates:
            certificate = self.issued(self._name(user))
            settings |= {"ssl.certificate.pem": certificate.chain, "ssl.key.pem": certificate.key}
        if self.protocol in SASL_PROTOCOLS:
            name = self._name(user)
            settings["sasl.mechanism"] = mechanism
            if mechanism == OAUTHBEARER:
                self.password(name)
                settings["oauth_cb"] = lambda config: (self.token(name), time.time() + TOKEN_LIFETIME_S)
            else:
                settings |= {"sasl.username": name, "sasl.password": self.password(name)}
        return settings

    def ssl_context(self, user: str | None = None) -> ssl.SSLContext | None:
        """Return the TLS context for clients that accept one (kafka-python, aiokafka) and for sockets; None without
        TLS."""
        if self.protocol not in TLS_PROTOCOLS:
            return None
        context = ssl.create_default_context(cadata=self.certificate)
        if self._requires_certificates:
            certificate = self.issued(self._name(user))
            with tempfile.NamedTemporaryFile("w") as file:  # Python loads a key from a file only
                file.write(certificate.key + certificate.chain)
                file.flush()
                context.load_cert_chain(file.name)
        return context

    def token(self, user: str | None = None, seconds: float = TOKEN_LIFETIME_S, **claims: Any) -> str:
        """Return a token of OAUTHBEARER that expires after `seconds`. `claims` replace the usual ones; None omits
        one."""
        now = time.time()
        usual = {"sub": self._name(user), "iss": ISSUER, "aud": AUDIENCE, "iat": int(now), "exp": now + seconds}
        return self._tokens.signed({**usual, **claims})

    @cached_property
    def _tokens(self) -> SignedTokens:
        return SignedTokens()

    def issued(self, user: str) -> IssuedCertificate:
        """Return the certificate of a user and its key."""
        if user != ADMIN:
            self.password(user)
        return self._issued(user)

    def password(self, user: str) -> str:
        """Return the password of a user. Raises KeyError if there is no such user."""
        return self._admin_password if user == ADMIN else self.users[user]

    @property
    def has_sasl(self) -> bool:
        return self.protocol in SASL_PROTOCOLS

    @property
    def _requires_certificates(self) -> bool:
        return self.protocol == "SSL" and bool(self.users)

    def _name(self, user: str | None) -> str:
        return next(iter(self.users)) if user is None else user


def _add_scram(mechanism: str, name: str, password: str) -> str:
    """Return a value of --add-scram. It has the salted password, because a plain one could contain any character."""
    salt = secrets.token_bytes(16)
    key = salt_password(mechanism, password, salt, MIN_ITERATIONS)
    return f'{mechanism}=[name="{name}",salt={_base64(salt)},saltedpassword={_base64(key)}]'


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
