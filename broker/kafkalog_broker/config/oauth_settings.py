"""Settings of SASL/OAUTHBEARER, read from Kafka's properties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from kafkalog_broker.config.definition import NO_JAVA, ConfigError, invalid_value

CALLBACK_HANDLER = "sasl.server.callback.handler.class"

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
OAUTH_MODULE = f"{_PACKAGE}OAuthBearerLoginModule"
SECURED_HANDLERS = (
    f"{_PACKAGE}OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",  # its name before Kafka 4
)
UNSECURED_HANDLER = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"

_PROPERTY_PREFIX = "sasl.oauthbearer."
JWKS_URL = f"{_PROPERTY_PREFIX}jwks.endpoint.url"
_CLOCK_SKEW_S = f"{_PROPERTY_PREFIX}clock.skew.seconds"
_AUDIENCES = f"{_PROPERTY_PREFIX}expected.audience"
_PROPERTIES_BY_FIELD = {
    "issuer": f"{_PROPERTY_PREFIX}expected.issuer",
    "scope_claim": f"{_PROPERTY_PREFIX}scope.claim.name",
    "subject_claim": f"{_PROPERTY_PREFIX}sub.claim.name",
    "refresh_ms": f"{_PROPERTY_PREFIX}jwks.endpoint.refresh.ms",
    "retry_ms": f"{_PROPERTY_PREFIX}jwks.endpoint.retry.backoff.ms",
    "max_retry_ms": f"{_PROPERTY_PREFIX}jwks.endpoint.retry.backoff.max.ms",
}
"""Property of each field of OAuthSettings that has the property's value unchanged."""
OAUTH_PROPERTIES = frozenset({JWKS_URL, _CLOCK_SKEW_S, _AUDIENCES, *_PROPERTIES_BY_FIELD.values()})

_JAAS_OPTION_PREFIX = "unsecuredValidator"
_JAAS_CLOCK_SKEW_MS = f"{_JAAS_OPTION_PREFIX}AllowableClockSkewMs"


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Settings for checking the tokens of OAUTHBEARER.

    Attributes:
        jwks_url: http, https or file URL of the public keys that verify tokens; None accepts unsecured tokens.
        issuer: Required issuer, or None for any.
        audiences: A token must have one of these audiences; if empty, it must have none.
        scope_claim, subject_claim: Names of the claims in the token.
        scopes: Scopes that an unsecured token must have.
        refresh_ms: Interval between two reads of the keys.
        retry_ms, max_retry_ms: First and longest pause after a failed read.
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
    def from_properties(cls, property_value: Callable[[str], Any], handler: str, options: dict[str, str]) -> Self:
        """Read the settings.

        Args:
            property_value: Returns the parsed value of a property for this mechanism and listener.
            handler: Class name of the configured callback handler; empty for the default.
            options: Options of the JAAS entry.

        Raises:
            ConfigError: If the handler is not supported, or a property is missing or invalid.
        """
        if handler == UNSECURED_HANDLER:
            return cls._unsecured(options)
        if handler and handler not in SECURED_HANDLERS:
            raise invalid_value(
                CALLBACK_HANDLER,
                handler,
                NO_JAVA,
                f"OAUTHBEARER supports only {SECURED_HANDLERS[0]} and {UNSECURED_HANDLER}",
            )
        url = property_value(JWKS_URL)
        if not url:
            raise ConfigError(
                "OAUTHBEARER needs the public keys that verify tokens",
                name=JWKS_URL,
                hint=f"set {JWKS_URL} to an http, https or file URL; unsigned tokens, for tests, are accepted with "
                f"listener.name.LISTENER.oauthbearer.{CALLBACK_HANDLER}={UNSECURED_HANDLER}",
            )
        if urlsplit(url).scheme not in ("http", "https", "file"):
            raise invalid_value(JWKS_URL, url, "expected an http, https or file URL")
        return cls(
            url,
            audiences=frozenset(filter(None, property_value(_AUDIENCES))),
            clock_skew_ms=property_value(_CLOCK_SKEW_S) * 1000,
            **{field: property_value(name) for field, name in _PROPERTIES_BY_FIELD.items()},
        )

    @classmethod
    def _unsecured(cls, options: dict[str, str]) -> Self:
        skew_ms = options.get(_JAAS_CLOCK_SKEW_MS, "").strip() or "0"
        if not skew_ms.isdecimal():
            raise ConfigError(
                f"{_JAAS_CLOCK_SKEW_MS} must be a non-negative integer, got {skew_ms[:20]!r}", name="sasl.jaas.config"
            )
        return cls(
            None,
            clock_skew_ms=int(skew_ms),
            scope_claim=options.get(f"{_JAAS_OPTION_PREFIX}ScopeClaimName", "").strip() or "scope",
            subject_claim=options.get(f"{_JAAS_OPTION_PREFIX}PrincipalClaimName", "").strip() or "sub",
            scopes=tuple(options.get(f"{_JAAS_OPTION_PREFIX}RequiredScope", "").split()),
        )
