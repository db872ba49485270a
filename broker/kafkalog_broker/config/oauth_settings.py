"""Settings of SASL/OAUTHBEARER, read from Kafka's properties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from kafkalog_broker.config.definition import NO_JAVA, ConfigError, invalid_value

HANDLER = "sasl.server.callback.handler.class"

PREFIX = "sasl.oauthbearer."
URL = f"{PREFIX}jwks.endpoint.url"
_OF_TOKENS = {
    "issuer": "expected.issuer", "audiences": "expected.audience", "clock_skew_ms": "clock.skew.seconds",
    "scope_claim": "scope.claim.name", "subject_claim": "sub.claim.name", "refresh_ms": "jwks.endpoint.refresh.ms",
    "retry_ms": "jwks.endpoint.retry.backoff.ms", "max_retry_ms": "jwks.endpoint.retry.backoff.max.ms",
}  # fmt: skip
"""Field of OAuthSettings -> its property without PREFIX."""
OAUTH_PROPERTIES = frozenset({URL, *(PREFIX + name for name in _OF_TOKENS.values())})

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
MODULE = f"{_PACKAGE}OAuthBearerLoginModule"
SECURED = (
    f"{_PACKAGE}OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",  # its name before Kafka 4
)
UNSECURED = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"

_OPTION = "unsecuredValidator"


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Settings for checking the tokens of OAUTHBEARER.

    Attributes:
        jwks_url: http, https or file URL of the keys that sign tokens; None accepts unsecured tokens.
        issuer: Required issuer, or None for any.
        audiences: A token must have one of these audiences; if empty, it must have none.
        scope_claim, subject_claim: Names of the claims in the token.
        scopes: Scopes that an unsecured token must have.
        refresh_ms: Interval between two reads of the keys.
    """

    jwks_url: str | None
    issuer: str | None = None
    audiences: frozenset[str] = frozenset()
    clock_skew_ms: int = 30_000
    scope_claim: str = "scope"
    subject_claim: str = "sub"
    scopes: tuple[str, ...] = ()
    refresh_ms: int = 3_600_000
    retry_ms: int = 100
    max_retry_ms: int = 10_000

    @classmethod
    def of(cls, value: Callable[[str], Any], handler: str, options: dict[str, str]) -> Self:
        """Read the settings.

        Args:
            value: Returns the parsed value of a property for this mechanism and listener.
            handler: Class name of the configured callback handler; empty for the default.
            options: Options of the JAAS entry.

        Raises:
            ConfigError: If the handler is not supported, or a property is missing or invalid.
        """
        if handler == UNSECURED:
            return cls._unsecured(options)
        if handler and handler not in SECURED:
            raise invalid_value(HANDLER, handler, NO_JAVA, f"for OAUTHBEARER {SECURED[0]} and {UNSECURED} are served")
        url = value(URL)
        if not url:
            raise ConfigError(
                "the mechanism OAUTHBEARER needs the keys that sign tokens",
                name=URL,
                hint=f"set {URL}, https or file; unsigned tokens, for tests, are accepted with "
                f"listener.name.LISTENER.oauthbearer.{HANDLER}={UNSECURED}",
            )
        if urlsplit(url).scheme not in ("http", "https", "file"):
            raise invalid_value(URL, url, "expected a URL of https, http or file")
        found = {field: value(PREFIX + name) for field, name in _OF_TOKENS.items()}
        found["audiences"] = frozenset(filter(None, found["audiences"]))
        found["clock_skew_ms"] *= 1000
        return cls(url, **found)

    @classmethod
    def _unsecured(cls, options: dict[str, str]) -> Self:
        skew = options.get(f"{_OPTION}AllowableClockSkewMs", "").strip() or "0"
        if not skew.isdecimal():
            raise ConfigError(f"Allowable clock skew millis must not be negative: {skew[:20]}", name="sasl.jaas.config")
        return cls(
            None,
            clock_skew_ms=int(skew),
            scope_claim=options.get(f"{_OPTION}ScopeClaimName", "").strip() or "scope",
            subject_claim=options.get(f"{_OPTION}PrincipalClaimName", "").strip() or "sub",
            scopes=tuple(options.get(f"{_OPTION}RequiredScope", "").split()),
        )
