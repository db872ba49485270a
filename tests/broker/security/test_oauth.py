"""OAUTHBEARER: validation of tokens, errors for clients, session lifetimes and signing keys."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.oauth_settings import OAUTH_MODULE, SECURED_HANDLERS, UNSECURED_HANDLER, OAuthSettings
from kafkalog_broker.config.sasl_settings import OAUTHBEARER, SaslSettings
from kafkalog_broker.security.jwks import parse_jwks
from kafkalog_broker.security.jwt import InvalidToken, Token, check_signed_token, check_unsecured_token
from kafkalog_broker.security.oauth_tokens import MIN_RELOAD_INTERVAL_S, UNKNOWN_KEY_RETRY_S, TokenValidator
from kafkalog_broker.security.sasl_exchange import CredentialStore, SaslExchange, Session
from kafkalog_broker.security.sasl_mechanism import SaslFailed

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1000
EC = ECKey.generate_key("P-256", parameters={"kid": "ec"})
RSA = RSAKey.generate_key(2048, parameters={"kid": "rsa"})
OTHER = ECKey.generate_key("P-256", parameters={"kid": "ec"})
SECRET = OctKey.generate_key(256, parameters={"kid": "secret"})


def jwks(*keys: Any) -> bytes:
    return json.dumps(KeySet(list(keys)).as_dict(private=False)).encode()


KEYS = parse_jwks(jwks(EC, RSA, SECRET))
SIGNED = OAuthSettings("file:///keys", "issuer", frozenset({"kafka", "other"}))
CLAIMS = {"sub": "alice", "iss": "issuer", "aud": ["kafka"], "iat": NOW_S - 10, "exp": NOW_S + 60}


def token(key: Any = EC, algorithm: str = "ES256", kid: str | None = "ec", **claims: Any) -> str:
    header = {"alg": algorithm} | ({} if kid is None else {"kid": kid})
    present = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode(header, present, key, algorithms=[algorithm])


def unsigned(header: dict[str, Any] | None = None, signature: str = "", **claims: Any) -> str:
    present = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    parts = (json.dumps(part).encode() for part in ({"alg": "none"} if header is None else header, present))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "." + signature


def checked(text: str, settings: OAuthSettings = SIGNED) -> Token:
    return check_signed_token(text, KEYS, settings, NOW_MS)


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (EC, "ES256", "ec"), (EC, "ES256", None), (RSA, "RS256", "rsa"), (RSA, "PS512", None),
    ],
)  # fmt: skip
def test_token_of_each_algorithm_is_accepted(key: Any, algorithm: str, kid: str | None) -> None:
    assert checked(token(key, algorithm, kid)) == Token("alice", (NOW_S + 60) * 1000)


def with_another_signature() -> str:
    whole = token()
    return whole[: whole.rindex(".")] + token(sub="bob")[whole.rindex(".") :]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (token(OTHER), "signature is wrong"),
        (with_another_signature(), "signature is wrong"),
        (token(kid="elsewhere"), "its signing key is unknown"),
        (token(RSA, "RS256", "ec"), "its signing key is unknown"),
        (token(SECRET, "HS256", "secret"), "the algorithm is 'HS256'"),
        (unsigned(), "the algorithm is 'none'"),
        (unsigned({"alg": ["none"]}), "the algorithm is"),
        (token(exp=None), "no expiration time"),
        (token(iat=None), "no time of issue"),
        (token(exp=NOW_S - 30), "has expired"),
        (token(nbf=NOW_S + 31), "is not valid yet"),
        (token(exp="soon"), "exp is not a time"),
        (token(exp=True), "exp is not a time"),
        (token(iss="another"), "another issuer"),
        (token(iss=None), "another issuer"),
        (token(aud="another"), "another audience"),
        (token(aud=None), "another audience"),
        (token(aud=[1]), "another audience"),
        (token(sub=None), "no principal"),
        (token(sub=" "), "no principal"),
        (token(sub=7), "no principal"),
        (token(scope=["a", "a"]), "empty or repeated scope"),
        ("x", "not base64"),
        ("e30", "the algorithm is"),
        ("", "not a JSON object"),
        ("W10.W10.", "not a JSON object"),
        ("a" * 70_000, "more than"),
    ],
)
def test_invalid_token_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidToken, match=why) as error:
        checked(text)
    signature = text.rpartition(".")[2]
    assert not signature or signature not in str(error.value)


def test_token_within_the_clock_skew_or_with_other_claims_is_accepted() -> None:
    assert checked(token(exp=NOW_S - 29)).expires_ms == (NOW_S - 29) * 1000  # within the clock skew
    assert checked(token(nbf=NOW_S + 29, scope="a b", sub=" alice ")).subject == "alice"
    anyone = OAuthSettings("file:///keys", subject_claim="name")
    assert checked(token(aud=None, iss=None, name="bob"), anyone).subject == "bob"
    with pytest.raises(InvalidToken, match="another audience"):
        checked(token(name="bob"), anyone)  # as in Kafka: one that names an audience is for somebody


UNSIGNED = OAuthSettings(None, clock_skew_ms=0, scopes=("write",))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (token(), "the algorithm none"),
        (unsigned(signature="e30"), "the algorithm none"),
        (unsigned(exp=NOW_S, scope="write"), "expired"),
        (unsigned(iat=NOW_S + 1, scope="write"), "in the future"),
        (unsigned(iat=NOW_S, exp=NOW_S, scope="write"), "expired"),
        (unsigned(sub=None, scope="write"), "no principal"),
        (unsigned(exp=None), "no expiration"),
        (unsigned(scope="read"), "scope is missing"),
        (unsigned(), "scope is missing"),
    ],
)
def test_unsecured_token_is_checked(text: str, why: str) -> None:
    assert check_unsecured_token(unsigned(scope=["read", "write"]), UNSIGNED, NOW_MS).subject == "alice"
    with pytest.raises(InvalidToken, match=why):
        check_unsecured_token(text, UNSIGNED, NOW_MS)


def exchange(reauth_ms: int = 0, oauth: OAuthSettings = UNSIGNED, again: Session | None = None) -> SaslExchange:
    settings = SaslSettings((OAUTHBEARER,), {}, {OAUTHBEARER: reauth_ms}, 1000, 100, oauth)
    tokens = TokenValidator(oauth, lambda: NOW_MS, lambda: 0.0)
    made = SaslExchange(settings, CredentialStore(lambda mechanism, name: None, tokens.validate, lambda: NOW_MS), again)
    assert made.handshake(OAUTHBEARER)
    return made


def first(text: str, authzid: str = "", more: str = "") -> bytes:
    return f"n,{authzid},\x01auth=Bearer {text}\x01{more}\x01".encode()


GOOD = unsigned(scope="write")


@pytest.mark.parametrize(
    ("reauth_ms", "lifetime_ms", "ends"), [(0, 60_000, 60), (1000, 1000, 60), (90_000, 60_000, 60)]
)  # fmt: skip
def test_session_ends_with_its_token(reauth_ms: int, lifetime_ms: int, ends: int) -> None:
    made = exchange(reauth_ms)
    assert made.authenticate(first(unsigned(scope="write", exp=NOW_S + ends))) == b""
    assert made.session == Session(OAUTHBEARER, "User:alice", lifetime_ms)


def test_token_expired_within_the_clock_skew_gives_a_limited_session() -> None:
    made = exchange(oauth=OAuthSettings(None, clock_skew_ms=30_000))
    made.authenticate(first(unsigned(exp=NOW_S - 1)))
    assert made.session == Session(OAUTHBEARER, "User:alice", 0)


def test_invalid_token_gets_an_error_challenge_before_failure() -> None:
    made = exchange()
    assert made.authenticate(first(unsigned(scope="read"))) == b'{"status":"insufficient_scope", "scope":"[write]"}'
    assert made.authenticate(first(unsigned(exp=1))) == b'{"status":"invalid_token"}'
    assert (made.session, made.failure) == (None, None)
    with pytest.raises(SaslFailed) as error:
        made.authenticate(b"\x01")
    assert error.value.client_message == '{"status":"invalid_token"}'
    assert made.failure is not None


def test_second_attempt_with_a_valid_token_succeeds() -> None:
    made = exchange()
    made.authenticate(first("x.y.z"))
    assert made.authenticate(first(GOOD, "a=alice", "traceId=x\x01")) == b""
    assert made.session is not None


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\x01", b"alice", first(""), first("a b"), first(GOOD)[:-1], first(GOOD, "alice"), b"y,,\x01\x01",
        b"n,,\x01\x01", b"n,,\x01host=x\x01\x01", b"n,,\x01auth=Basic x\x01\x01", first(GOOD, "a=a=b"), b"\xff\xfe",
    ],
)  # fmt: skip
def test_invalid_first_message_fails_authentication(message: bytes) -> None:
    with pytest.raises(SaslFailed) as error:
        exchange().authenticate(message)
    assert error.value.client_message is not None
    assert error.value.client_message.endswith("invalid credentials with SASL mechanism OAUTHBEARER")


def test_authorization_id_other_than_the_principal_is_refused() -> None:
    with pytest.raises(SaslFailed) as error:
        exchange().authenticate(first(GOOD, "a=bob"))
    assert error.value.client_message == (
        "Authentication failed: Client requested an authorization id (bob) that is different from the token's "
        "principal name (alice)"
    )


def test_session_is_renewed_for_the_same_principal_only() -> None:
    made = exchange(again=Session(OAUTHBEARER, "User:bob", 1))
    with pytest.raises(SaslFailed):
        made.authenticate(first(GOOD))


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_keys_are_reloaded(tmp_path: Path) -> None:
    file, clock = tmp_path / "jwks.json", Time()
    file.write_bytes(jwks(RSA))
    tokens = TokenValidator(OAuthSettings(file.as_uri(), "issuer", frozenset({"kafka"})), lambda: NOW_MS, clock)
    assert tokens.is_due
    tokens.load()
    assert not tokens.is_due
    assert tokens.validate(token(RSA, "RS256", "rsa")).subject == "alice"
    file.write_bytes(jwks(RSA, EC))
    with pytest.raises(InvalidToken):
        tokens.validate(token())
    assert tokens.is_due  # a key that is not known is looked for
    tokens.load_if_due()
    assert tokens.validate(token()).subject == "alice"
    clock.now += MIN_RELOAD_INTERVAL_S
    for _ in range(2):
        with pytest.raises(InvalidToken):
            tokens.validate(token(kid="invented"))
        assert tokens.is_due is (_ == 0)
        tokens.load_if_due()
    clock.now += UNKNOWN_KEY_RETRY_S
    with pytest.raises(InvalidToken):
        tokens.validate(token(kid="invented"))
    assert tokens.is_due
    file.write_bytes(b"{}")
    tokens.load_if_due()
    assert not tokens.is_due  # after a failure: later
    assert tokens.validate(token()).subject == "alice"
    clock.now += 3600
    assert tokens.is_due
    with pytest.raises(ConfigError, match="cannot be read: not a JSON Web Key Set"):
        tokens.load()


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/keys" else 404)
            self.end_headers()
            self.wfile.write(jwks(EC))

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{serving.server_address[1]}"
        serving.shutdown()
        thread.join()


def test_keys_are_loaded_from_a_server(server: str) -> None:
    tokens = TokenValidator(OAuthSettings(f"{server}/keys", "issuer", frozenset({"kafka"})), lambda: NOW_MS, Time())
    tokens.load()
    assert tokens.validate(token()).subject == "alice"
    with pytest.raises(ConfigError, match="Not Found"):
        TokenValidator(OAuthSettings(f"{server}/other"), lambda: NOW_MS, Time()).load()


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": [{"kty": "RSA"}]}', jwks(SECRET)],
    ids=["nothing", "a list", "an object", "keys that are none", "a key without numbers", "a secret"],
)
def test_invalid_key_set_raises_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a JSON Web Key Set|no public key"):
        parse_jwks(data)


BASE = {
    "listeners": "SASL_PLAINTEXT://:0", "log.dirs": "/x", "sasl.enabled.mechanisms": OAUTHBEARER,
}  # fmt: skip
OWN = "listener.name.sasl_plaintext.oauthbearer."
URL = "sasl.oauthbearer.jwks.endpoint.url"


def settings_of(**properties: str) -> OAuthSettings:
    config = BrokerConfig.from_properties({**BASE, **properties})
    assert config.without_effect() == []
    sasl = config.listener_security["SASL_PLAINTEXT"].sasl
    assert sasl is not None
    assert sasl.oauth is not None
    return sasl.oauth


def test_oauth_properties_are_parsed() -> None:
    assert settings_of(**{URL: "https://a/keys"}) == OAuthSettings("https://a/keys")
    given = {
        URL: "https://a/keys", f"{OWN}{URL}": "file:///keys", "sasl.oauthbearer.expected.audience": "a,b",
        f"{OWN}sasl.oauthbearer.expected.issuer": "i", "sasl.oauthbearer.clock.skew.seconds": "5",
        "sasl.oauthbearer.sub.claim.name": "name", f"{OWN}sasl.server.callback.handler.class": SECURED_HANDLERS[0],
        f"{OWN}sasl.jaas.config": f"{OAUTH_MODULE} required;",
    }  # fmt: skip
    wanted = OAuthSettings("file:///keys", "i", frozenset("ab"), 5000, subject_claim="name")
    assert settings_of(**given) == wanted


def test_unsecured_tokens_are_accepted_only_if_configured() -> None:
    handler = {f"{OWN}sasl.server.callback.handler.class": UNSECURED_HANDLER}
    assert settings_of(**handler) == OAuthSettings(None, clock_skew_ms=0)
    options = (
        f'{OAUTH_MODULE} required unsecuredValidatorRequiredScope="a b" unsecuredValidatorAllowableClockSkewMs="9";'
    )
    wanted = OAuthSettings(None, clock_skew_ms=9, scopes=("a", "b"))
    assert settings_of(**handler, **{f"{OWN}sasl.jaas.config": options}) == wanted


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({}, "needs the public keys"),
        ({URL: "ftp://x"}, "expected an http, https or file URL"),
        ({URL: "https://x", f"{OWN}sasl.server.callback.handler.class": "org.Mine"}, "classes of Java"),
        ({URL: "https://x", f"{OWN}sasl.jaas.config": "org.Mine required;"}, "OAuthBearerLoginModule"),
    ],
)
def test_unusable_oauth_settings_raise_config_error(properties: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        settings_of(**properties)


@pytest.mark.parametrize("skew_ms", ["-1", "abc", "1.5"])
def test_clock_skew_that_is_not_a_number_of_milliseconds_is_refused(skew_ms: str) -> None:
    handler = {f"{OWN}sasl.server.callback.handler.class": UNSECURED_HANDLER}
    options = f'{OAUTH_MODULE} required unsecuredValidatorAllowableClockSkewMs="{skew_ms}";'
    text = f"unsecuredValidatorAllowableClockSkewMs must be a non-negative integer, got '{skew_ms}'"
    with pytest.raises(ConfigError, match=text):
        settings_of(**handler, **{f"{OWN}sasl.jaas.config": options})
