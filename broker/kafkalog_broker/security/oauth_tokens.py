"""Tokens of OAUTHBEARER (RFC 7519): whom one names, until when, and why it is not taken. Decisions only.

Signed tokens as Kafka's BrokerJwtValidator checks them, with the algorithms that have a public key; unsecured ones as
OAuthBearerUnsecuredValidatorCallbackHandler does.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.oauth_settings import URL, OAuthSettings
from kafkalog_broker.runtime.log_rate import LogRate
from kafkalog_spark.http_client import HttpClient

if TYPE_CHECKING:  # it takes a tenth of a second, so who has no such tokens does without
    from joserfc.jwk import ECKey, RSAKey

    SigningKey = RSAKey | ECKey

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Those with a secret on both sides (HS256) are left out: the keys of a JWKS are public."""
MAX_TOKEN_BYTES = 64 << 10  # larger than any header of HTTP, in which such tokens travel

_SHOWN = 5  # keys that are left out and named in the log

_log = logging.getLogger(__name__)
_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC"}


class Token(NamedTuple):
    """Subject of a token, and its end in ms since 1970."""

    subject: str
    expires_ms: int


class InvalidToken(Exception):
    """The text is for the log, and shows nothing of the token's signature. scope: those that are needed, in Kafka's
    form. key_id: of a key that is not known, so that keys may be read again."""

    def __init__(self, why: str, *, scope: str | None = None, key_id: str | None = None) -> None:
        super().__init__(why)
        self.scope, self.key_id = scope, key_id


def parse_jwks(data: bytes) -> tuple[SigningKey, ...]:
    """The public keys for signatures. One that cannot be read, say of a curve that is not known here, is left out, and
    one line in the log. Raises ValueError: this is no JWKS, or has no such key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry

    odd = (KeyError, TypeError, AttributeError, ValueError, JoseError, UnsupportedAlgorithm)
    try:
        entries = list(json.loads(data)["keys"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"this is no JSON Web Key Set: {type(error).__name__}") from None
    found, left_out = [], []
    for number, entry in enumerate(entries):
        try:
            if entry.get("kty") in _KINDS.values() and entry.get("use", "sig") == "sig":
                found.append(cast("SigningKey", JWKRegistry.import_key(entry)))
        except odd as error:
            key_id = entry.get("kid") if isinstance(entry, dict) else None
            left_out.append(f"{number} ({key_id!r:.100}: {type(error).__name__})")
    if left_out:
        shown = ", ".join(left_out[:_SHOWN])
        _log.warning("%d keys of a JSON Web Key Set cannot be read and are left out: %s", len(left_out), shown)
    if not found:
        raise ValueError("it holds no public key for signatures (RSA or EC) that can be read")
    return tuple(found)


def signed_token(text: str, keys: tuple[SigningKey, ...], settings: OAuthSettings, now_ms: int) -> Token:
    """Raises InvalidToken."""
    from joserfc import jws
    from joserfc.errors import JoseError

    header = _header(text)
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise InvalidToken(f"its algorithm is {str(algorithm)[:20]!r}, not one of {', '.join(ALGORITHMS)}")
    possible = [key for key in keys if key.key_type == _KINDS[algorithm[:2]] and key_id in (None, key.kid)]
    if not possible:
        raise InvalidToken("it is signed with a key that is not known", key_id=str(key_id)[:200])
    for key in possible:
        try:
            payload = jws.deserialize_compact(text, key, algorithms=[algorithm]).payload
        except (JoseError, ValueError):
            continue
        return _checked(_object(payload), settings, now_ms)
    raise InvalidToken("its signature is wrong")


def unsecured_token(text: str, settings: OAuthSettings, now_ms: int) -> Token:
    """A token that nobody has signed: anybody can make one. Raises InvalidToken."""
    parts = text.split(".")
    if _header(text).get("alg") != "none" or len(parts) != 3 or parts[2]:
        raise InvalidToken("an unsecured token has the algorithm none and no signature")
    claims = _object(_decoded(parts[1]))
    expires_ms = _time(claims, "exp")
    if expires_ms is None:
        raise InvalidToken("it has no expiration time")
    subject = _subject(claims, settings)
    issued_ms, skew = _time(claims, "iat"), settings.clock_skew_ms
    if issued_ms is not None and issued_ms > now_ms + skew:
        raise InvalidToken("it was issued in the future")
    if now_ms - skew >= expires_ms:
        raise InvalidToken("it has expired")
    if issued_ms is not None and expires_ms <= issued_ms:
        raise InvalidToken("it ends before it was issued")
    if not set(settings.scopes) <= set(_scopes(claims.get(settings.scope_claim))):
        raise InvalidToken("a scope is missing", scope=f"[{', '.join(settings.scopes)}]")
    return Token(subject, expires_ms)


def _checked(claims: Mapping[str, Any], settings: OAuthSettings, now_ms: int) -> Token:
    expires_ms, issued_ms, begins_ms = (_time(claims, name) for name in ("exp", "iat", "nbf"))
    skew = settings.clock_skew_ms
    if expires_ms is None or issued_ms is None:
        raise InvalidToken("it has no expiration time" if expires_ms is None else "it does not say when it was issued")
    if now_ms - skew >= expires_ms:
        raise InvalidToken("it has expired")
    if begins_ms is not None and now_ms + skew < begins_ms:
        raise InvalidToken("it does not hold yet")
    if settings.issuer is not None and claims.get("iss") != settings.issuer:
        raise InvalidToken("it is of another issuer")
    named = claims.get("aud", ())
    audiences = {named} if isinstance(named, str) else set(named) if _is_texts(named) else None
    if audiences is None or ((audiences or settings.audiences) and not audiences & settings.audiences):
        raise InvalidToken("it is for another audience")
    subject = _subject(claims, settings)
    scopes = _scopes(claims.get(settings.scope_claim))
    if not all(scopes) or len(set(scopes)) != len(scopes):
        raise InvalidToken(f"the claim {settings.scope_claim} has an empty scope, or one twice")
    return Token(subject.strip(), expires_ms)


def _subject(claims: Mapping[str, Any], settings: OAuthSettings) -> str:
    subject = claims.get(settings.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidToken(f"it has no principal in the claim {settings.subject_claim}")
    return subject


def _scopes(claim: Any) -> list[str]:
    if isinstance(claim, str):
        return claim.split()
    return [scope.strip() for scope in claim] if _is_texts(claim) else []


def _is_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


def _time(claims: Mapping[str, Any], name: str) -> int | None:
    """In ms. Raises InvalidToken for what is no number."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1 << 53:
        raise InvalidToken(f"the claim {name} is no time")
    return int(value * 1000)


def _header(text: str) -> dict[str, Any]:
    if len(text) > MAX_TOKEN_BYTES:
        raise InvalidToken(f"it has {len(text)} bytes, more than {MAX_TOKEN_BYTES}")
    return _object(_decoded(text.partition(".")[0]))


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part.rstrip("=") + "=" * (-len(part.rstrip("=")) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidToken("a part of it is no base64") from None


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidToken("a part of it is no JSON object")
    return found


UNKNOWN_AGAIN_S = 60.0
"""A key id that is still unknown after keys were read is looked for again after so long, as in Kafka: tokens with
invented ids must not make the broker ask all the time."""
UNKNOWN_IDS = 1_000  # number of such ids that are remembered
LOOK_AGAIN_S = 10.0
"""The least time between two readings that unknown ids cause, whatever their number: a new key of the server's is
known after that at the latest, and who invents ids makes the broker ask six times a minute."""


class Tokens:
    """Validation of the tokens of one listener, with keys that are read again and again (RefreshingHttpsJwks). `load`
    waits for a file or a server and is for another thread than the event loop's; all else decides with the keys that
    are there. now_ms: since 1970. clock: seconds of a clock that never goes back."""

    def __init__(self, settings: OAuthSettings, now_ms: Callable[[], int], clock: Callable[[], float]) -> None:
        self.settings = settings
        self._now_ms, self._clock = now_ms, clock
        self._keys: tuple[SigningKey, ...] = ()
        self._due = clock()
        self._failures = 0
        self._unknown: dict[str, float] = {}
        self._looked = -LOOK_AGAIN_S  # when unknown ids were, or will be, looked for
        self._refused = LogRate(_log)

    def check(self, text: str) -> Token:
        """Raises InvalidToken; why is one line in the log, without the token."""
        try:
            if self.settings.jwks_url is None:
                return unsecured_token(text, self.settings, self._now_ms())
            return signed_token(text, self._keys, self.settings, self._now_ms())
        except InvalidToken as error:
            if error.key_id is not None:
                self._look_for(error.key_id)
            self._refused.log(logging.INFO, "a token is refused: %s", error)
            raise

    @property
    def is_due(self) -> bool:
        return self.settings.jwks_url is not None and self._clock() >= self._due

    def load(self) -> None:
        """Read the keys. Raises ConfigError; the keys that were there stay."""
        url = self.settings.jwks_url
        assert url is not None
        try:
            self._keys = parse_jwks(read_jwks(url, self._clock))
        except (OSError, ValueError) as error:
            wait_ms = min(self.settings.retry_ms << min(self._failures, 20), self.settings.max_retry_ms)
            self._due = self._clock() + wait_ms / 1000
            self._failures += 1
            raise ConfigError(f"the keys of {url} cannot be read: {error}", name=URL) from None
        self._failures = 0
        self._due = self._clock() + self.settings.refresh_ms / 1000

    def load_if_due(self) -> None:
        """An error is logged."""
        if self.is_due:
            try:
                self.load()
            except ConfigError as error:
                self._refused.log(logging.WARNING, "%s; those that were read before stay", error)

    def _look_for(self, key_id: str) -> None:
        now = self._clock()
        if self._unknown.get(key_id, now) <= now:
            if len(self._unknown) >= UNKNOWN_IDS:
                del self._unknown[next(iter(self._unknown))]
            self._unknown[key_id] = now + UNKNOWN_AGAIN_S
            due = max(now, self._looked + LOOK_AGAIN_S)
            if not self._failures and due < self._due:
                self._due = self._looked = due


MAX_BYTES = 1 << 20  # a set of some hundred keys has a tenth of it


def read_jwks(url: str, clock: Callable[[], float]) -> bytes:
    """Content of a URL (file, http, https). Who can send the broker elsewhere decides whose tokens it takes: HttpClient
    goes nowhere else. Raises OSError (TimeoutError too) or ValueError, with why."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with Path(unquote(parts.path)).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES} bytes")
        return data
    answer = HttpClient(MAX_BYTES, {"Accept": "application/json"}, clock=clock).send(url)
    if answer.status != 200:
        raise ValueError(f"its server answers {answer.status} {answer.reason}")
    return answer.content
