"""Settings of SASL/OAUTHBEARER, read from Kafka's properties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from kafkalog_broker.config.definition import NO_JAVA, ConfigError, invalid_value

CALLBACK_HANDLER = "sasl.server.callback.handler.class"

_PREFIX = "sasl.oauthbearer."
JWKS_URL = f"{_PREFIX}jwks.endpoint.url"
_PROPERTIES_BY_FIELD = {
    "issuer": "expected.issuer", "audiences": "expected.audience", "clock_skew_ms": "clock.skew.seconds",
    "scope_claim": "scope.claim.name", "subject_claim": "sub.claim.name", "refresh_ms": "jwks.endpoint.refresh.ms",
    "retry_ms": "jwks.endpoint.retry.backoff.ms", "max_retry_ms": "jwks.endpoint.retry.backoff.max.ms",
}  # fmt: skip
"""Field of OAuthSettings -> its property, without _PREFIX."""
OAUTH_PROPERTIES = frozenset({JWKS_URL, *(_PREFIX + name for name in _PROPERTIES_BY_FIELD.values())})

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
OAUTH_MODULE = f"{_PACKAGE}OAuthBearerLoginModule"
SECURED_HANDLERS = (
    f"{_PACKAGE}OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",  # its name before Kafka 4
)
UNSECURED_HANDLER = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"

_JAAS_OPTION_PREFIX = "unsecuredValidator"


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
    def of(cls, mechanism_value: Callable[[str], Any], handler: str, options: dict[str, str]) -> Self:
        """Read the settings.

        Args:
            mechanism_value: Returns the parsed value of a property for this mechanism and listener.
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
                f"for OAUTHBEARER {SECURED_HANDLERS[0]} and {UNSECURED_HANDLER} are served",
            )
        url = mechanism_value(JWKS_URL)
        if not url:
            raise ConfigError(
                "the mechanism OAUTHBEARER needs the keys that sign tokens",
                name=JWKS_URL,
                hint=f"set {JWKS_URL}, https or file; unsigned tokens, for tests, are accepted with "
                f"listener.name.LISTENER.oauthbearer.{CALLBACK_HANDLER}={UNSECURED_HANDLER}",
            )
        if urlsplit(url).scheme not in ("http", "https", "file"):
            raise invalid_value(JWKS_URL, url, "expected a URL of https, http or file")
        fields = {field: mechanism_value(_PREFIX + name) for field, name in _PROPERTIES_BY_FIELD.items()}
        fields["audiences"] = frozenset(filter(None, fields["audiences"]))
        fields["clock_skew_ms"] *= 1000
        return cls(url, **fields)

    @classmethod
    def _unsecured(cls, options: dict[str, str]) -> Self:
        skew = options.get(f"{_JAAS_OPTION_PREFIX}AllowableClockSkewMs", "").strip() or "0"
        if not skew.isdecimal():
            raise ConfigError(f"Allowable clock skew millis must not be negative: {skew[:20]}", name="sasl.jaas.config")
        return cls(
            None,
            clock_skew_ms=int(skew),
            scope_claim=options.get(f"{_JAAS_OPTION_PREFIX}ScopeClaimName", "").strip() or "scope",
            subject_claim=options.get(f"{_JAAS_OPTION_PREFIX}PrincipalClaimName", "").strip() or "sub",
            scopes=tuple(options.get(f"{_JAAS_OPTION_PREFIX}RequiredScope", "").split()),
        )
