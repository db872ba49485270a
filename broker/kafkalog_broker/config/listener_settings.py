"""How the peers of a listener prove who they are: Kafka's ssl.* and sasl.* properties, from text to values, and what
contradicts itself among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self
from urllib.parse import urlsplit

from kafkalog_broker.config.definition import BROKER_PROPERTIES, NO_JAVA, ConfigError, first_value, invalid_value
from kafkalog_spark.jaas import parse_jaas

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
_OLD = frozenset({"SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})
"""Named in old files; Java has switched them off since 16, whatever the configuration says."""

_TYPES = ("PEM", "PKCS12", "JKS")


@dataclass(frozen=True, slots=True)
class Store:
    """A keystore or a truststore. `type`: PEM, PKCS12 or JKS, which is Java's word for a PKCS12 file too. `pem`, and of
    a keystore `key`: the content itself, in place of `location`."""

    kind: str
    type: str
    location: str | None
    password: str | None = field(repr=False)
    pem: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """`client_auth`: none, requested or required. `protocols`: those of TLS_1_2 and TLS_1_3 that are allowed.
    `cipher_suites`: as the RFCs name them; empty: OpenSSL's own choice."""

    keystore: Store
    truststore: Store | None
    client_auth: str
    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    principal_mapping_rules: str
    allow_dn_changes: bool
    allow_san_changes: bool

    @classmethod
    def of(cls, value: Callable[[str], Any], client_auth: str) -> Self:
        """`value`: the parsed value of a property for this listener. Raises ConfigError."""
        keystore = _keystore(value)
        if keystore is None:
            raise ConfigError(
                "a listener with TLS needs a certificate: set ssl.keystore.location and ssl.keystore.password, or with "
                "ssl.keystore.type=PEM the properties ssl.keystore.key and ssl.keystore.certificate.chain",
                name="ssl.keystore.location",
            )
        if value("ssl.engine.factory.class") is not None:
            raise ConfigError(f"ssl.engine.factory.class: {NO_JAVA}", name="ssl.engine.factory.class")
        return cls(
            keystore,
            _truststore(value),
            client_auth,
            _protocols(value),
            tuple(_words(value("ssl.cipher.suites"))),
            value("ssl.principal.mapping.rules"),
            value("ssl.allow.dn.changes"),
            value("ssl.allow.san.changes"),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """The stores that are files."""
        stores = (self.keystore, self.truststore)
        return tuple(store.location for store in stores if store is not None and store.location is not None)


def _keystore(value: Callable[[str], Any]) -> Store | None:
    """Key store settings, checked as by DefaultSslEngineFactory.createKeystore, whose words these are."""
    kind, location = _type("ssl.keystore.type", value), value("ssl.keystore.location") or None
    password, key_password = value("ssl.keystore.password") or None, value("ssl.key.password") or None
    key, chain = value("ssl.keystore.key") or None, value("ssl.keystore.certificate.chain") or None
    has_key, has_chain, has_file, has_password = (one is not None for one in (key, chain, location, password))
    is_pem, name = kind == "PEM", "ssl.keystore.key"
    _refuse(has_chain and not has_key, name, "SSL certificate chain is specified, but private key is not specified")
    wrong_type = f"SSL private key can be specified only for PEM, but key store type is {kind}."
    _refuse(has_key and not is_pem, name, wrong_type)
    _refuse(has_key and not has_chain, name, "SSL private key is specified, but certificate chain is not specified.")
    _refuse(has_key and has_file, name, "Both SSL key store location and separate private key are specified.")
    only_key = "SSL key store password cannot be specified with PEM format, only key password may be specified"
    _refuse(is_pem and has_password and (has_key or has_file), "ssl.keystore.password", only_key)
    if has_key:
        return Store("keystore", kind, None, None, chain, key, key_password)
    no_file = "SSL key store is not specified, but key store password is specified."
    _refuse(has_password and not has_file, name, no_file)
    no_password = "SSL key store is specified, but key store password is not specified."
    _refuse(has_file and not is_pem and not has_password, "ssl.keystore.password", no_password)
    return Store("keystore", kind, location, password, key_password=key_password) if has_file else None


def _truststore(value: Callable[[str], Any]) -> Store | None:
    """Trust store settings, checked as by DefaultSslEngineFactory.createTruststore."""
    kind, location = _type("ssl.truststore.type", value), value("ssl.truststore.location") or None
    password, pem = value("ssl.truststore.password") or None, value("ssl.truststore.certificates") or None
    has_certificates, has_file, has_password = (one is not None for one in (pem, location, password))
    is_pem, is_there, name = kind == "PEM", has_certificates or has_file, "ssl.truststore.certificates"
    wrong_type = f"SSL trust store certs can be specified only for PEM, but trust store type is {kind}."
    _refuse(has_certificates and not is_pem, name, wrong_type)
    both = "Both SSL trust store location and separate trust certificates are specified."
    _refuse(has_certificates and has_file, name, both)
    _refuse(is_pem and has_password and is_there, name, "SSL trust store password cannot be specified for PEM format.")
    no_file = "SSL trust store is not specified, but trust store password is specified."
    _refuse(has_password and not is_there, name, no_file)
    return Store("truststore", kind, location, password, pem) if is_there else None


def _refuse(wrong: bool, name: str, why: str) -> None:
    if wrong:
        raise ConfigError(why, name=name)


def _type(name: str, value: Callable[[str], Any]) -> str:
    kind: str = value(name).upper()
    if kind not in _TYPES:
        raise invalid_value(name, kind, f"one of {', '.join(_TYPES)}")
    return kind


def _protocols(value: Callable[[str], Any]) -> tuple[str, ...]:
    """ssl.enabled.protocols, of which ssl.protocol is the highest, as in Java."""
    name = "ssl.enabled.protocols"
    wanted = _words(value(name)) or [TLS_1_2, TLS_1_3]
    unknown = [word for word in wanted if word not in {TLS_1_2, TLS_1_3, *_OLD}]
    if unknown:
        raise invalid_value(name, unknown[0], f"{TLS_1_2} and {TLS_1_3} are served")
    highest = value("ssl.protocol") or TLS_1_3
    if highest in _OLD:
        raise invalid_value("ssl.protocol", highest, f"{TLS_1_2} and {TLS_1_3} are served")
    served = tuple(word for word in (TLS_1_2, TLS_1_3) if word in wanted and not (highest == TLS_1_2 < word))
    if not served:
        why = f"none of them is served, use {TLS_1_2},{TLS_1_3} and an ssl.protocol that allows one of them"
        raise invalid_value(name, ",".join(wanted), why)
    return served


def _words(listed: tuple[str, ...] | None) -> list[str]:
    return list(filter(None, listed or ()))


# Logins by SASL.

PREFIX = "sasl.oauthbearer."
URL = f"{PREFIX}jwks.endpoint.url"
_OF_TOKENS = {
    "issuer": "expected.issuer", "audiences": "expected.audience", "clock_skew_ms": "clock.skew.seconds",
    "scope_claim": "scope.claim.name", "subject_claim": "sub.claim.name", "refresh_ms": "jwks.endpoint.refresh.ms",
    "retry_ms": "jwks.endpoint.retry.backoff.ms", "max_retry_ms": "jwks.endpoint.retry.backoff.max.ms",
}  # fmt: skip
"""Field of OAuthSettings -> its property, without PREFIX."""
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
    """Settings of tokens that are signed with a key of `jwks_url` (http, https or file); None: of unsecured ones.
    audiences: one of them must be in the token, none: the token must name none. Claims are named as in the token.
    scopes: all must be in an unsecured token. refresh_ms: how often the keys are read again."""

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
        """value: the parsed value of a property for this mechanism and listener. handler: the class that is to check
        tokens. options: of the JAAS entry. Raises ConfigError."""
        if handler == UNSECURED:
            return cls._unsecured(options)
        if handler and handler not in SECURED:
            raise invalid_value(HANDLER, handler, NO_JAVA, f"for OAUTHBEARER {SECURED[0]} and {UNSECURED} are served")
        url = value(URL)
        if not url:
            raise ConfigError(
                "the mechanism OAUTHBEARER needs keys that tokens are signed with",
                name=URL,
                hint=f"set {URL}, https or file; tokens that nobody has signed, for tests, are taken where "
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


MECHANISMS = "sasl.enabled.mechanisms"
JAAS = "sasl.jaas.config"
HANDLER = "sasl.server.callback.handler.class"
MAX_REAUTH = "connections.max.reauth.ms"

PLAIN = "PLAIN"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS_SERVED = (PLAIN, *SCRAM, OAUTHBEARER)

_USER = "user_"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """`mechanisms`: those that are enabled, in order. `plain_users`: name to password. `max_reauth_ms`: by mechanism,
    how long a session lasts, 0: for ever. `failed_delay_ms`: how long the answer to a failed attempt waits."""

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str] = field(repr=False)
    max_reauth_ms: Mapping[str, int]
    max_receive_bytes: int
    failed_delay_ms: int
    oauth: OAuthSettings | None = None  # where OAUTHBEARER is enabled

    @classmethod
    def of(cls, value: Callable[[str], Any], own: Callable[[str], str | None]) -> Self:
        """value: parsed, for this listener. own: text set for it alone, of a mechanism's properties under
        `mechanism.name`. Raises ConfigError."""

        def of_mechanism(mechanism: str, name: str) -> Any:
            text = own(f"{mechanism.lower()}.{name}")
            return value(name) if text is None else BROKER_PROPERTIES[name].parse(text)

        mechanisms, users, oauth = _mechanisms(value(MECHANISMS)), None, None
        for mechanism in mechanisms:
            handler = of_mechanism(mechanism, HANDLER) or value(HANDLER)
            if mechanism == OAUTHBEARER:
                options = _jaas_options(own, OAUTHBEARER, MODULE) or {}
                oauth = OAuthSettings.of(partial(of_mechanism, OAUTHBEARER), handler or "", options)
            elif handler:
                raise invalid_value(HANDLER, handler, NO_JAVA)
            elif mechanism == PLAIN:
                users = _jaas_options(own, PLAIN, PLAIN_MODULE)
                if users is None:
                    name = f"{PLAIN.lower()}.{JAAS}"
                    hint = f'set listener.name.LISTENER.{name}={PLAIN_MODULE} required user_alice="password";'
                    raise ConfigError(f"the mechanism {PLAIN} needs its users", name=name, hint=hint)
        return cls(
            mechanisms,
            {key.removeprefix(_USER): text for key, text in (users or {}).items() if key.startswith(_USER)},
            {mechanism: of_mechanism(mechanism, MAX_REAUTH) for mechanism in mechanisms},
            value("sasl.server.max.receive.size"),
            value("connection.failed.authentication.delay.ms"),
            oauth,
        )


def _mechanisms(listed: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(filter(None, listed)))
    unserved = [name for name in names if name not in MECHANISMS_SERVED]
    if unserved or not names:
        hint = "Kafka's default is GSSAPI (Kerberos): name those that the listener is to have"
        raise invalid_value(MECHANISMS, ",".join(names), f"{', '.join(MECHANISMS_SERVED)} are served", hint)
    return names


def _jaas_options(own: Callable[[str], str | None], mechanism: str, module: str) -> dict[str, str] | None:
    """Options of the mechanism's JAAS entry; None without one. Raises ConfigError, which shows nothing of the text."""
    name = f"{mechanism.lower()}.{JAAS}"
    text = own(name)
    if text is None:
        return None
    try:
        entry = parse_jaas(text)
    except ValueError as error:
        hint = f'expected one entry: {PLAIN_MODULE} required user_NAME="PASSWORD";'
        raise invalid_value(name, "[hidden]", str(error), hint) from None
    if entry.module != module:
        raise invalid_value(name, "[hidden]", f"expected {module}")
    return dict(entry.options)


# How the peers of each listener prove who they are: `listener.name.external.ssl.keystore.location` of the listener
# EXTERNAL, `ssl.keystore.location` of every listener without one of its own.

LISTENER_PREFIX = "listener.name."
TLS_PROTOCOLS = ("SSL", "SASL_SSL")
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")

LISTENER_PROPERTIES = frozenset(
    {
        "connection.failed.authentication.delay.ms", "connections.max.reauth.ms", "sasl.enabled.mechanisms",
        "sasl.jaas.config", "sasl.server.callback.handler.class", "sasl.server.max.receive.size",
        "ssl.allow.dn.changes", "ssl.allow.san.changes", "ssl.cipher.suites", "ssl.client.auth",
        "ssl.enabled.protocols", "ssl.engine.factory.class", "ssl.key.password", "ssl.keystore.certificate.chain",
        "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type",
        "ssl.principal.mapping.rules", "ssl.protocol", "ssl.truststore.certificates", "ssl.truststore.location",
        "ssl.truststore.password", "ssl.truststore.type", *OAUTH_PROPERTIES,
    }
)  # fmt: skip
"""Sources of a listener's settings."""

MECHANISM_PROPERTIES = frozenset({JAAS, HANDLER, MAX_REAUTH, *OAUTH_PROPERTIES})
"""Those that have the name of a mechanism in front: `plain.sasl.jaas.config`."""


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """`protocol`: one of listeners.PROTOCOLS. `tls`, `sasl`: where that has it."""

    protocol: str
    tls: TlsSettings | None
    sasl: SaslSettings | None

    @classmethod
    def of(cls, listener: str, protocol: str, layers: tuple[Mapping[str, str], ...]) -> Self:
        """layers: properties as text, the one that counts first. Raises ConfigError, which names the listener."""

        def own(name: str) -> str | None:
            key = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
            return next((layer[key] for layer in layers if key in layer), None)

        def value(name: str) -> Any:  # as AbstractConfig.valuesWithPrefixOverride
            text = own(name)
            return BROKER_PROPERTIES[name].parse(first_value(layers, name) if text is None else text)

        tls = sasl = None
        try:
            if protocol in TLS_PROTOCOLS:
                # As in Kafka, where SASL authenticates unless a listener says otherwise.
                by_sasl = protocol in SASL_PROTOCOLS and own("ssl.client.auth") is None
                tls = TlsSettings.of(value, "none" if by_sasl else value("ssl.client.auth"))
            if protocol in SASL_PROTOCOLS:
                sasl = SaslSettings.of(value, own)
            return cls(protocol, tls, sasl)
        except ConfigError as error:
            raise ConfigError(f"listener {listener}: {error.what}", name=error.name, hint=error.hint) from None


def listener_property(name: str) -> str | None:
    """`ssl.keystore.type` of `listener.name.external.ssl.keystore.type`; None for what is no listener's property."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    rest = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    mechanism, _, of_mechanism = rest.partition(".")
    if of_mechanism in MECHANISM_PROPERTIES:
        return of_mechanism if mechanism.upper() in MECHANISMS_SERVED else None
    return rest if rest in LISTENER_PROPERTIES else None
