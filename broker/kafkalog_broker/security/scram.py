"""SCRAM (RFC 5802 and 7677): what is kept of a password, and the server's side of an exchange. Decisions only.

By hand, on hashlib and hmac of Python: the packages there are for it compare what must be compared in constant time as
bytes are compared everywhere else.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkalog_broker.security.refusal import Refused

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
"""What Kafka allows (ScramMechanism, ScramControlManager)."""

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_FIRST = re.compile(
    r"(?P<gs2>n,(?:a=(?P<authzid>[^,]*))?,)(?P<bare>(?:m=[^,]*,)?n=(?P<user>[^,]*),r=(?P<nonce>[^,]+)(?:,.*)?)"
)
_FINAL = re.compile(r"(?P<without_proof>c=(?P<channel>[^,]*),r=(?P<nonce>[^,]+)(?:,.*)?),p=(?P<proof>[^,]*)")


@dataclass(frozen=True, slots=True)
class Credential:
    """What the broker keeps: with it an exchange is checked, and no password or proof can be made."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def credential(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> Credential:
    """Of what AlterUserScramCredentials brings."""
    hash_name = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return Credential(salt, stored_key, hmac.digest(salted_password, b"Server Key", hash_name), iterations)


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password. Milliseconds for 4,096 iterations."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


class ScramServer:
    """One exchange of two messages. `user` and `done` once it has succeeded."""

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
        first = _FIRST.fullmatch(text)
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
