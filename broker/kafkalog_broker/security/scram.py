"""SCRAM (RFC 5802 and RFC 7677): stored credentials, and the server side of an exchange (Kafka: ScramSaslServer).

Implemented with hashlib and hmac, because the available packages compare secrets in variable time.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkalog_broker.security.sasl_mechanism import (
    OTHER_AUTHORIZATION_ID,
    Authenticated,
    Mechanism,
    SaslFailed,
)

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384  # Kafka's limits (ScramMechanism, ScramControlManager)

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_CLIENT_FIRST = re.compile(
    r"(?P<gs2>n,(?:a=(?P<authzid>[^,]*))?,)(?P<bare>(?:m=[^,]*,)?n=(?P<user>[^,]*),r=(?P<nonce>[^,]+)(?:,.*)?)"
)
_CLIENT_FINAL = re.compile(r"(?P<without_proof>c=(?P<channel>[^,]*),r=(?P<nonce>[^,]+)(?:,.*)?),p=(?P<proof>[^,]*)")


@dataclass(frozen=True, slots=True)
class Credential:
    """Stored credential of a user. It verifies proofs of clients, but does not disclose the password or a proof."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def derive_credential(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> Credential:
    """Derive the stored credential from a salted password."""
    hash_name = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    return Credential(salt, stored_key, hmac.digest(salted_password, b"Server Key", hash_name), iterations)


def salt_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password. Blocks for milliseconds, in proportion to the iterations."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


def scram_exchange(
    mechanism: str, find: Callable[[str], Credential | None], nonce: Callable[[], str] = lambda: secrets.token_hex(16)
) -> Mechanism:
    """Run an exchange in which the client sends two messages.

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        find: Returns the stored credential of a user, or None.
        nonce: Makes the server's part of the nonce.
    """
    hash_name = _HASHES[mechanism]
    first = _CLIENT_FIRST.fullmatch(_utf8((yield b"")))
    if first is None:
        raise SaslFailed(None, "the first SCRAM message is malformed")
    user = _user_name(first["user"])
    stored = find(user)
    if stored is None:
        raise SaslFailed(None, "there is no such user with this mechanism")
    if first["authzid"] and _user_name(first["authzid"]) != user:
        raise SaslFailed(OTHER_AUTHORIZATION_ID, "another authorization id")
    whole_nonce = first["nonce"] + nonce()
    challenge = f"r={whole_nonce},s={base64.b64encode(stored.salt).decode()},i={stored.iterations}"
    final = _CLIENT_FINAL.fullmatch(_utf8((yield challenge.encode())))
    try:
        if final is None:
            raise ValueError
        channel, proof = (base64.b64decode(final[name], validate=True) for name in ("channel", "proof"))
    except ValueError:
        raise SaslFailed(None, "the second SCRAM message is malformed") from None
    if channel != first["gs2"].encode() or not hmac.compare_digest(final["nonce"].encode(), whole_nonce.encode()):
        raise SaslFailed(None, "the second SCRAM message belongs to another exchange")
    signed = f"{first['bare']},{challenge},{final['without_proof']}".encode()
    signature = hmac.digest(stored.stored_key, signed, hash_name)
    if len(proof) != len(signature):
        raise SaslFailed(None, "the proof is wrong")
    client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
    if not hmac.compare_digest(hashlib.new(hash_name, client_key).digest(), stored.stored_key):
        raise SaslFailed(None, "the password is wrong")
    return Authenticated(b"v=" + base64.b64encode(hmac.digest(stored.server_key, signed, hash_name)), user)


def _utf8(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslFailed(None, "a SCRAM message is not UTF-8") from None


def _user_name(text: str) -> str:
    """Decode a user's name, in which commas and equals signs are written =2C and =3D."""
    if re.search(r"=(?!2C|3D)", text):
        raise SaslFailed(None, "the user's name is malformed")
    return text.replace("=2C", ",").replace("=3D", "=")
