"""Checks of the JSON Web Tokens (RFC 7519) of OAUTHBEARER, without I/O.

Signed tokens are checked as by Kafka's BrokerJwtValidator, with the algorithms that have a public key; unsecured ones
as by OAuthBearerUnsecuredValidatorCallbackHandler.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog_broker.config.oauth_settings import OAuthSettings
from kafkalog_broker.security.jwks import KEY_TYPES

if TYPE_CHECKING:
    from kafkalog_broker.security.jwks import SigningKey

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Algorithms with a shared secret (HS256) are left out, because the keys of a JWKS are public."""

MAX_TOKEN_BYTES = 64 << 10  # larger than any HTTP header, in which such tokens usually travel


class Token(NamedTuple):
    """Accepted token: its subject, and its expiry in ms since 1970."""

    subject: str
    expires_ms: int


class InvalidToken(Exception):
    """A token is not accepted. The text follows "a token is refused: " in the log, without the token's signature.

    Attributes:
        scope: Required scopes in Kafka's form, if one is missing.
        key_id: ID of the signing key, if it is unknown; the keys may then be read again.
    """

    def __init__(self, reason: str, *, scope: str | None = None, key_id: str | None = None) -> None:
        super().__init__(reason)
        self.scope = scope
        self.key_id = key_id


def check_signed_token(text: str, keys: tuple[SigningKey, ...], settings: OAuthSettings, now_ms: int) -> Token:
    """Check a signed token. Raises InvalidToken."""
    from joserfc import jws
    from joserfc.errors import JoseError

    header = _parse_header(text)
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise InvalidToken(f"the algorithm is {str(algorithm)[:20]!r}, not one of {', '.join(ALGORITHMS)}")
    candidates = [key for key in keys if key.key_type == KEY_TYPES[algorithm[:2]] and key_id in (None, key.kid)]
    if not candidates:
        raise InvalidToken("its signing key is unknown", key_id=str(key_id)[:200])
    for key in candidates:
        try:
            payload = jws.deserialize_compact(text, key, algorithms=[algorithm]).payload
        except (JoseError, ValueError):
            continue
        return _check_claims(_parse_object(payload), settings, now_ms)
    raise InvalidToken("its signature is wrong")


def check_unsecured_token(text: str, settings: OAuthSettings, now_ms: int) -> Token:
    """Check a token without a signature. Anyone can make such a token. Raises InvalidToken."""
    parts = text.split(".")
    if _parse_header(text).get("alg") != "none" or len(parts) != 3 or parts[2]:
        raise InvalidToken("an unsecured token has the algorithm none and no signature")
    claims = _parse_object(_decode_base64(parts[1]))
    expires_ms = _time_claim(claims, "exp")
    if expires_ms is None:
        raise InvalidToken("it has no expiration time")
    subject = _subject(claims, settings)
    issued_ms = _time_claim(claims, "iat")
    skew = settings.clock_skew_ms
    if issued_ms is not None and issued_ms > now_ms + skew:
        raise InvalidToken("it was issued in the future")
    if now_ms - skew >= expires_ms:
        raise InvalidToken("it has expired")
    if issued_ms is not None and expires_ms <= issued_ms:
        raise InvalidToken("it expires before it was issued")
    if not set(settings.scopes) <= set(_scopes(claims.get(settings.scope_claim))):
        raise InvalidToken("a scope is missing", scope=f"[{', '.join(settings.scopes)}]")
    return Token(subject, expires_ms)


def _check_claims(claims: Mapping[str, Any], settings: OAuthSettings, now_ms: int) -> Token:
    expires_ms, issued_ms, not_before_ms = (_time_claim(claims, name) for name in ("exp", "iat", "nbf"))
    skew = settings.clock_skew_ms
    if expires_ms is None or issued_ms is None:
        raise InvalidToken("it has no expiration time" if expires_ms is None else "it has no time of issue")
    if now_ms - skew >= expires_ms:
        raise InvalidToken("it has expired")
    if not_before_ms is not None and now_ms + skew < not_before_ms:
        raise InvalidToken("it is not valid yet")
    if settings.issuer is not None and claims.get("iss") != settings.issuer:
        raise InvalidToken("it has another issuer")
    claim = claims.get("aud", ())
    audiences = {claim} if isinstance(claim, str) else set(claim) if _are_strings(claim) else None
    if audiences is None or ((audiences or settings.audiences) and not audiences & settings.audiences):
        raise InvalidToken("it has another audience")
    subject = _subject(claims, settings)
    scopes = _scopes(claims.get(settings.scope_claim))
    if not all(scopes) or len(set(scopes)) != len(scopes):
        raise InvalidToken(f"the claim {settings.scope_claim} has an empty or repeated scope")
    return Token(subject.strip(), expires_ms)


def _subject(claims: Mapping[str, Any], settings: OAuthSettings) -> str:
    subject = claims.get(settings.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidToken(f"it has no principal in the claim {settings.subject_claim}")
    return subject


def _scopes(claim: Any) -> list[str]:
    if isinstance(claim, str):
        return claim.split()
    return [scope.strip() for scope in claim] if _are_strings(claim) else []


def _are_strings(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _time_claim(claims: Mapping[str, Any], name: str) -> int | None:
    """Return a claim in seconds as ms, or None without it. Raises InvalidToken if it is not a number."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1 << 53:
        raise InvalidToken(f"the claim {name} is not a time")
    return int(value * 1000)


def _parse_header(text: str) -> dict[str, Any]:
    if len(text) > MAX_TOKEN_BYTES:
        raise InvalidToken(f"it has {len(text)} bytes, more than {MAX_TOKEN_BYTES}")
    return _parse_object(_decode_base64(text.partition(".")[0]))


def _decode_base64(part: str) -> bytes:
    try:
        return base64.b64decode(part.rstrip("=") + "=" * (-len(part.rstrip("=")) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidToken("one of its parts is not base64") from None


def _parse_object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidToken("one of its parts is not a JSON object")
    return value
