"""What Kafka's sasl.oauthbearer.* properties say about the tokens that a listener takes: text to values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from kafkalog_broker.config.definition import ConfigError, Value

PREFIX = "sasl.oauthbearer."
URL = f"{PREFIX}jwks.endpoint.url"
OAUTH_PROPERTIES = frozenset(
    PREFIX + name
    for name in (
        "clock.skew.seconds", "expected.audience", "expected.issuer", "jwks.endpoint.refresh.ms",
        "jwks.endpoint.retry.backoff.max.ms", "jwks.endpoint.retry.backoff.ms", "jwks.endpoint.url",
        "scope.claim.name", "sub.claim.name",
    )
)  # fmt: skip

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
    """Of tokens that are signed with a key of `jwks_url` (http, https or file); where that is None, of unsecured ones.

    audiences: one of them must be in the token, none: the token must name none. Claims are named as in the token.
    scopes: all must be in an unsecured token. refresh_ms: how often the keys are read again.
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
    def of(cls, value: Callable[[str], Value], handler: str | None, options: dict[str, str]) -> Self:
        """value: the parsed value of a property for this mechanism and listener. handler: the class that is to check
        tokens. options: of the JAAS entry. Raises ConfigError."""
        if handler == UNSECURED:
            return cls._unsecured(options)
        if handler and handler not in SECURED:
            raise ConfigError(
                f"Invalid value {handler[:200]} for configuration sasl.server.callback.handler.class: classes of Java "
                "cannot be loaded",
                name="sasl.server.callback.handler.class",
                hint=f"for OAUTHBEARER {SECURED[0]} and {UNSECURED} are served",
            )
        url = value(URL)
        if not url:
            raise ConfigError(
                "the mechanism OAUTHBEARER needs keys that tokens are signed with",
                name=URL,
                hint=f"set {URL}, https or file; tokens that nobody has signed, for tests, are taken where "
                f"listener.name.LISTENER.oauthbearer.sasl.server.callback.handler.class={UNSECURED}",
            )
        if urlsplit(str(url)).scheme not in ("http", "https", "file"):
            raise ConfigError(
                f"Invalid value {str(url)[:200]} for configuration {URL}: expected a URL of https, http or file",
                name=URL,
            )
        issuer, audiences = value(f"{PREFIX}expected.issuer"), value(f"{PREFIX}expected.audience")
        assert isinstance(audiences, tuple)
        return cls(
            str(url),
            None if issuer is None else str(issuer),
            frozenset(filter(None, audiences)),
            _number(value(f"{PREFIX}clock.skew.seconds")) * 1000,
            str(value(f"{PREFIX}scope.claim.name")),
            str(value(f"{PREFIX}sub.claim.name")),
            refresh_ms=_number(value(f"{PREFIX}jwks.endpoint.refresh.ms")),
            retry_ms=_number(value(f"{PREFIX}jwks.endpoint.retry.backoff.ms")),
            max_retry_ms=_number(value(f"{PREFIX}jwks.endpoint.retry.backoff.max.ms")),
        )

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


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value
