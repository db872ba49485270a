"""SASL authentication of a connection: its mechanisms, which requests may come in which state, and how long the session
lasts. Decisions only (SaslServerAuthenticator)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from kafkalog_broker.config.listener_settings import OAUTHBEARER, PLAIN, SaslSettings
from kafkalog_broker.protocol.api_messages import API_VERSIONS
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


# SCRAM (RFC 5802 and 7677): what is kept of a password, and the server's side of an exchange.
#
# By hand, on hashlib and hmac of Python: the packages there are for it compare what must be compared in constant
# time as bytes are compared everywhere else.

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384  # that Kafka allows (ScramMechanism, ScramControlManager)

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_SCRAM_FIRST = re.compile(
    r"(?P<gs2>n,(?:a=(?P<authzid>[^,]*))?,)(?P<bare>(?:m=[^,]*,)?n=(?P<user>[^,]*),r=(?P<nonce>[^,]+)(?:,.*)?)"
)
_OTHER_ID = "Authentication failed: Client requested an authorization id that is different from "
_FINAL = re.compile(r"(?P<without_proof>c=(?P<channel>[^,]*),r=(?P<nonce>[^,]+)(?:,.*)?),p=(?P<proof>[^,]*)")


@dataclass(frozen=True, slots=True)
class Credential:
    """Stored credential: an exchange is checked with it, and no password or proof can be made."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def credential(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> Credential:
    hash_name = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return Credential(salt, stored_key, hmac.digest(salted_password, b"Server Key", hash_name), iterations)


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password. Milliseconds for 4,096 iterations."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


class Authenticated(NamedTuple):
    """End of an exchange. answer: the last one. expires_ms: when what was shown ends, since 1970; None: never."""

    answer: bytes
    user: str
    expires_ms: int | None = None


Mechanism = Generator[bytes, bytes, Authenticated]
"""The server's side of one exchange: it is sent the client's messages and yields the answers, a first empty one before
anything came. Raises Refused."""


def scram(
    mechanism: str, find: Callable[[str], Credential | None], nonce: Callable[[], str] = lambda: secrets.token_hex(16)
) -> Mechanism:
    """Exchange of two messages. find: what is kept of a user."""
    hash_name = _HASHES[mechanism]
    first = _SCRAM_FIRST.fullmatch(_utf8((yield b"")))
    if first is None:
        raise Refused(None, "the first SCRAM message is malformed")
    user = _name(first["user"])
    known = find(user)
    if known is None:
        raise Refused(None, "there is no such user with this mechanism")
    if first["authzid"] and _name(first["authzid"]) != user:
        raise Refused(_OTHER_ID + "username", "another authorization id")
    whole_nonce = first["nonce"] + nonce()
    challenge = f"r={whole_nonce},s={base64.b64encode(known.salt).decode()},i={known.iterations}"
    final = _FINAL.fullmatch(_utf8((yield challenge.encode())))
    try:
        if final is None:
            raise ValueError
        channel, proof = (base64.b64decode(final[name], validate=True) for name in ("channel", "proof"))
    except ValueError:
        raise Refused(None, "the second SCRAM message is malformed") from None
    if channel != first["gs2"].encode() or not hmac.compare_digest(final["nonce"].encode(), whole_nonce.encode()):
        raise Refused(None, "the second SCRAM message belongs to another exchange")
    signed = f"{first['bare']},{challenge},{final['without_proof']}".encode()
    signature = hmac.digest(known.stored_key, signed, hash_name)
    if len(proof) != len(signature):
        raise Refused(None, "the proof is wrong")
    client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
    if not hmac.compare_digest(hashlib.new(hash_name, client_key).digest(), known.stored_key):
        raise Refused(None, "the password is wrong")
    return Authenticated(b"v=" + base64.b64encode(hmac.digest(known.server_key, signed, hash_name)), user)


def _utf8(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise Refused(None, "a SCRAM message is no UTF-8") from None


def _name(text: str) -> str:
    """A user's name: commas and equals signs are =2C and =3D in messages."""
    if re.search(r"=(?!2C|3D)", text):
        raise Refused(None, "the user's name is malformed")
    return text.replace("=2C", ",").replace("=3D", "=")


# PLAIN (RFC 4616), as PlainSaslServer checks it.

_TOKENS = 3


def plain(users: Mapping[str, str]) -> Mechanism:
    """Exchange of one message, refused in the texts that Kafka's clients are shown. users: name to password."""
    tokens = (yield b"").decode(errors="replace").split("\0", _TOKENS)
    if len(tokens) != _TOKENS:
        raise _refused(f"Invalid SASL/PLAIN response: expected {_TOKENS} tokens, got {len(tokens)}")
    authzid, user, password = tokens
    if not user:
        raise _refused("Authentication failed: username not specified")
    if not password:
        raise _refused("Authentication failed: password not specified")
    known = users.get(user)
    # Somebody who is not known costs the same.
    same = hmac.compare_digest(password.encode(), (known if known is not None else password + "x").encode())
    if known is None or not same:
        raise _refused("Authentication failed: Invalid username or password")
    if authzid and authzid != user:
        raise _refused(_OTHER_ID + "username")
    return Authenticated(b"", user)


def _refused(text: str) -> Refused:
    return Refused(text, text.removeprefix("Authentication failed: "))


# OAUTHBEARER (RFC 7628, KIP-255), as OAuthBearerSaslServer checks it.

_OAUTH_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01",
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_AFTER_AN_ERROR = b"\x01"


def oauth(check: Callable[[str], Token]) -> Mechanism:
    """A token, and an answer: that of a token that is refused is an error, which the client confirms. check: what a
    token says; raises InvalidToken."""
    message = yield b""
    while True:
        authzid, text = _first(message)
        try:
            found = check(text)
            break
        except InvalidToken as refusal:  # in Kafka's words, with its spaces
            scope = "" if refusal.scope is None else f', "scope":{json.dumps(refusal.scope)}'
        error = f'{{"status":"{"insufficient_scope" if scope else "invalid_token"}"{scope}}}'
        message = yield error.encode()
        if message == _AFTER_AN_ERROR:
            raise Refused(error, "the token was refused")
    if authzid and authzid != found.subject:
        raise Refused(
            "Authentication failed: Client requested an authorization id "
            f"({authzid}) that is different from the token's principal name ({found.subject})",
            "another authorization id",
        )
    return Authenticated(b"", found.subject, found.expires_ms)


def _first(message: bytes) -> tuple[str, str]:
    found = _OAUTH_FIRST.fullmatch(message.decode(errors="replace"))
    if found is None:
        raise Refused(None, "the client's first message is malformed")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise Refused(None, "the client's first message has no bearer token")
    return found["authzid"] or "", auth["token"]


HANDSHAKE, AUTHENTICATE = 17, 36


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
        self._server: Mechanism | None = None  # while it waits for a message
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
        if mechanism == PLAIN:
            self._server = plain(self._settings.plain_users)
        elif mechanism == OAUTHBEARER:
            self._server = oauth(self._known.check)
        else:
            self._server = scram(mechanism, partial(self._known.find, mechanism))
        next(self._server)
        return True

    def token(self, token: bytes) -> bytes:
        """The answer to a message of the mechanism. Raises Refused, whose `shown` is never None then."""
        server, self._server, again = self._server, None, self._again
        assert server is not None
        try:
            if again is not None and self._mechanism != again.mechanism:
                raise Refused(
                    f"SASL mechanism '{self._mechanism}' requested by client is not supported for re-authentication of "
                    f"mechanism '{again.mechanism}'",
                    "another mechanism",
                )
            try:
                answer = server.send(token)
                self._server = server
            except StopIteration as over:
                answer = self._complete(over.value)
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

    def _complete(self, shown: Authenticated) -> bytes:
        principal, again = f"User:{shown.user}", self._again
        if again is not None and principal != again.principal:
            one, other = (text.replace(":", ".", 1) for text in (again.principal, principal))
            raise Refused(f"Cannot change principals during re-authentication from {one}: {other}", "another principal")
        self.expected = ()
        bound = self._settings.max_reauth_ms[self._mechanism]
        lifetime = bound if bound > 0 else None
        if shown.expires_ms is not None:
            left = max(0, shown.expires_ms - self._known.now_ms())
            lifetime = left if lifetime is None else min(lifetime, left)
        self.session = Session(self._mechanism, principal, lifetime)
        return shown.answer
