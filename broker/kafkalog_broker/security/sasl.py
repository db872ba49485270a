"""SASL authentication of a connection: which requests may come in which state, and how long the session lasts.

Decisions only (SaslServerAuthenticator). The mechanisms' own messages are known by `plain` and `scram`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kafkalog_broker.config.sasl_settings import OAUTHBEARER, PLAIN, SCRAM, SaslSettings
from kafkalog_broker.protocol.codec import API_VERSIONS
from kafkalog_broker.security.oauth_tokens import InvalidToken, Token

# Why a peer is not who it says it is.


class NotAuthenticated(Exception):
    """The text is for the log, in one line, and holds nothing secret."""


class Refused(NotAuthenticated):
    """An exchange of SASL that failed. `shown`: what the client reads; None: no more than that it failed, so that a
    stranger does not learn whether there is such a user."""

    def __init__(self, shown: str | None, why: str) -> None:
        super().__init__(why)
        self.shown = shown


# SCRAM (RFC 5802 and 7677): what is kept of a password, and the server's side of an exchange. Decisions only.
#
# By hand, on hashlib and hmac of Python: the packages there are for it compare what must be compared in constant
# time as bytes are compared everywhere else.

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
"""Iterations that Kafka allows (ScramMechanism, ScramControlManager)."""

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_SCRAM_FIRST = re.compile(
    r"(?P<gs2>n,(?:a=(?P<authzid>[^,]*))?,)(?P<bare>(?:m=[^,]*,)?n=(?P<user>[^,]*),r=(?P<nonce>[^,]+)(?:,.*)?)"
)
_FINAL = re.compile(r"(?P<without_proof>c=(?P<channel>[^,]*),r=(?P<nonce>[^,]+)(?:,.*)?),p=(?P<proof>[^,]*)")


@dataclass(frozen=True, slots=True)
class Credential:
    """Stored credential: an exchange is checked with it, and no password or proof can be made."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def credential(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> Credential:
    """Credential of an AlterUserScramCredentials request."""
    hash_name = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return Credential(salt, stored_key, hmac.digest(salted_password, b"Server Key", hash_name), iterations)


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password. Milliseconds for 4,096 iterations."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


class ScramServer:
    """SCRAM exchange of two messages. `user` and `done` once it has succeeded."""

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], Credential | None],
        nonce: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self._hash, self._find, self._nonce = _HASHES[mechanism], find, nonce
        self._first: re.Match[str] | None = None
        self._challenge = ""
        self._credential: Credential | None = None
        self.user = ""
        self.done = False

    def evaluate(self, token: bytes) -> bytes:
        """The answer to a client's message. Raises Refused."""
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise Refused(None, "a SCRAM message is no UTF-8") from None
        return self._begin(text) if self._first is None else self._finish(text)

    def _begin(self, text: str) -> bytes:
        first = _SCRAM_FIRST.fullmatch(text)
        if first is None:
            raise Refused(None, "the first SCRAM message is malformed")
        name = _name(first["user"])
        known = self._find(name)
        if known is None:
            raise Refused(None, "there is no such user with this mechanism")
        if first["authzid"] and _name(first["authzid"]) != name:
            raise Refused(
                "Authentication failed: Client requested an authorization id that is different from username",
                "another authorization id",
            )
        self._first, self._credential, self.user = first, known, name
        salt = base64.b64encode(known.salt).decode()
        self._challenge = f"r={first['nonce']}{self._nonce()},s={salt},i={known.iterations}"
        return self._challenge.encode()

    def _finish(self, text: str) -> bytes:
        final, first, known = _FINAL.fullmatch(text), self._first, self._credential
        self._credential = None  # an exchange is over after its second message, whatever comes of it
        if final is None or first is None or known is None:
            raise Refused(None, "the second SCRAM message is malformed")
        try:
            channel, proof = _decoded(final["channel"]), _decoded(final["proof"])
        except ValueError:
            raise Refused(None, "the second SCRAM message is malformed") from None
        nonce = self._challenge.removeprefix("r=").partition(",")[0]
        if channel != first["gs2"].encode() or not hmac.compare_digest(final["nonce"].encode(), nonce.encode()):
            raise Refused(None, "the second SCRAM message belongs to another exchange")
        signed = f"{first['bare']},{self._challenge},{final['without_proof']}".encode()
        signature = hmac.digest(known.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise Refused(None, "the proof is wrong")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), known.stored_key):
            raise Refused(None, "the password is wrong")
        self.done = True
        return b"v=" + base64.b64encode(hmac.digest(known.server_key, signed, self._hash))


def _name(text: str) -> str:
    """A user's name: commas and equals signs are =2C and =3D in messages."""
    if re.search(r"=(?!2C|3D)", text):
        raise Refused(None, "the user's name is malformed")
    return text.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


# PLAIN (RFC 4616), as PlainSaslServer checks it.

_TOKENS = 3


class PlainServer:
    """PLAIN exchange of one message. `user` and `done` once it has succeeded."""

    def __init__(self, users: Mapping[str, str]) -> None:
        """users: name to password."""
        self._users = users
        self.user = ""
        self.done = False

    def evaluate(self, token: bytes) -> bytes:
        """The answer to a client's message. Raises Refused, with the texts that Kafka's clients are shown."""
        tokens = token.decode(errors="replace").split("\0", _TOKENS)
        if len(tokens) != _TOKENS:
            raise _refused(f"Invalid SASL/PLAIN response: expected {_TOKENS} tokens, got {len(tokens)}")
        authzid, user, password = tokens
        if not user:
            raise _refused("Authentication failed: username not specified")
        if not password:
            raise _refused("Authentication failed: password not specified")
        known = self._users.get(user)
        # Somebody who is not known costs the same.
        same = hmac.compare_digest(password.encode(), (known if known is not None else password + "x").encode())
        if known is None or not same:
            raise _refused("Authentication failed: Invalid username or password")
        if authzid and authzid != user:
            raise _refused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user, self.done = user, True
        return b""


def _refused(text: str) -> Refused:
    return Refused(text, text.removeprefix("Authentication failed: "))


# OAUTHBEARER (RFC 7628, KIP-255): the server's side of an exchange (OAuthBearerSaslServer).

_OAUTH_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01",
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_AFTER_AN_ERROR = b"\x01"


class OAuthServer:
    """OAUTHBEARER exchange: a token, and an answer. `user`, `done` and `expires_ms` (since 1970) once it has
    succeeded."""

    def __init__(self, check: Callable[[str], Token]) -> None:
        """check: what a token says; raises InvalidToken."""
        self._check = check
        self._error: str | None = None
        self.user = ""
        self.done = False
        self.expires_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes:
        """The answer to a client's message: an error is one too, until the client has confirmed it. Raises Refused."""
        if self._error is not None and token == _AFTER_AN_ERROR:
            raise Refused(self._error, "the token was refused")
        self._error = None
        authzid, text = _first(token)
        try:
            found = self._check(text)
        except InvalidToken as error:
            self._error = _as_json(error)
            return self._error.encode()
        if authzid and authzid != found.subject:
            raise Refused(
                f"Authentication failed: Client requested an authorization id ({authzid}) that is different from the "
                f"token's principal name ({found.subject})",
                "another authorization id",
            )
        self.user, self.expires_ms, self.done = found.subject, found.expires_ms, True
        return b""


def _first(message: bytes) -> tuple[str, str]:
    found = _OAUTH_FIRST.fullmatch(message.decode(errors="replace"))
    if found is None:
        raise Refused(None, "the client's first message is malformed")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise Refused(None, "the client's first message has no bearer token")
    return found["authzid"] or "", auth["token"]


def _as_json(error: InvalidToken) -> str:
    """Server error in Kafka's words, with its spaces."""
    if error.scope is None:
        return '{"status":"invalid_token"}'
    return '{"status":"insufficient_scope", "scope":' + json.dumps(error.scope) + "}"


HANDSHAKE, AUTHENTICATE = 17, 36


class Mechanism(Protocol):
    """The server's side of one exchange."""

    user: str
    done: bool

    def evaluate(self, token: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class KnownUsers:
    """Known users. find(mechanism, name): stored credential of a user of SCRAM. check: the claims of a token of
    OAUTHBEARER; raises InvalidToken. now_ms: since 1970, for when tokens end."""

    find: Callable[[str, str], Credential | None]
    check: Callable[[str], Token]
    now_ms: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Session:
    """Authenticated peer. `lifetime_ms`: how long until it has to prove it again; None: never; 0: what
    was shown has ended, within what clocks may differ by, and no request is taken."""

    mechanism: str
    principal: str
    lifetime_ms: int | None


class SaslExchange:
    """expected: API keys of which one comes next; any other request ends the connection. `session` is there when it has
    succeeded. again: the session that a re-authentication is to renew (KIP-368)."""

    def __init__(self, settings: SaslSettings, known: KnownUsers, again: Session | None = None) -> None:
        self._settings, self._known, self._again = settings, known, again
        self.mechanisms = settings.mechanisms
        self.expected: tuple[int, ...] = (API_VERSIONS, HANDSHAKE)
        self._mechanism = ""
        self._server: Mechanism | None = None
        self.session: Session | None = None
        self.refused: str | None = None  # why it has failed, for the log

    def refuse(self, why: str) -> None:
        """It is over. why: for the log."""
        self.expected, self.refused = (), why

    def api_versions(self) -> None:
        """They were asked for and answered."""
        self.expected = (HANDSHAKE,)

    def handshake(self, mechanism: str) -> bool:
        """The peer has chosen; False when that mechanism is not enabled."""
        if mechanism not in self.mechanisms:
            self.refuse(f"the mechanism {mechanism[:40]!r} is not enabled")
            return False
        self.expected = (AUTHENTICATE,)
        self._mechanism = mechanism
        self._server = _server(mechanism, self._settings, self._known)
        return True

    def token(self, token: bytes) -> bytes:
        """The answer to a message of the mechanism. Raises Refused, whose `shown` is never None then."""
        assert self._server is not None
        again = self._again
        try:
            if again is not None and self._mechanism != again.mechanism:
                raise Refused(
                    f"SASL mechanism '{self._mechanism}' requested by client is not supported for re-authentication of "
                    f"mechanism '{again.mechanism}'",
                    "another mechanism",
                )
            answer = self._server.evaluate(token)
            if self._server.done:
                self._complete(self._server.user, getattr(self._server, "expires_ms", None))
        except Refused as error:
            self.refuse(f"{self._mechanism}: {error}")
            if error.shown is None:
                what = "authentication" if again is None else "re-authentication"
                error.shown = (
                    f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
                    f"{self._mechanism}"
                )
            raise
        return answer

    def _complete(self, user: str, expires_ms: int | None) -> None:
        """expires_ms: when what was shown ends, since 1970; None: never."""
        principal, again = f"User:{user}", self._again
        if again is not None and principal != again.principal:
            one, other = (text.replace(":", ".", 1) for text in (again.principal, principal))
            raise Refused(f"Cannot change principals during re-authentication from {one}: {other}", "another principal")
        self.expected = ()
        bound = self._settings.max_reauth_ms[self._mechanism]
        lifetime = bound if bound > 0 else None
        if expires_ms is not None:
            left = max(0, expires_ms - self._known.now_ms())
            lifetime = left if lifetime is None else min(lifetime, left)
        self.session = Session(self._mechanism, principal, lifetime)


def _server(mechanism: str, settings: SaslSettings, known: KnownUsers) -> Mechanism:
    if mechanism == PLAIN:
        return PlainServer(settings.plain_users)
    if mechanism == OAUTHBEARER:
        return OAuthServer(known.check)
    assert mechanism in SCRAM
    return ScramServer(mechanism, lambda name: known.find(mechanism, name))
