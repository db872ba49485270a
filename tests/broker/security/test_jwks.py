"""Loading of the JSON Web Key Set from a server: invalid responses, timeouts and request times."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.oauth_settings import OAuthSettings
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.security.jwks import MAX_BYTES, parse_jwks
from kafkalog_broker.security.jwt import InvalidToken
from kafkalog_broker.security.oauth_tokens import MIN_RELOAD_INTERVAL_S, TokenValidator
from kafkalog_broker.startup import background_tasks, credentials
from kafkalog_spark.http_client import REDIRECTS, TIMEOUT_S
from tests.broker.security.stores import authority, pem_file
from tests.broker.security.test_oauth import EC, NOW_MS, RSA, Time, jwks, token

Answer = Callable[[socket.socket], None]
KEYS = jwks(EC)


def answer(body: bytes = KEYS, status: str = "200 OK", *headers: str) -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", *headers, "", "")).encode() + body


@contextmanager
def serving(*answers: bytes | Answer, context: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[str]:
    """Yield the URL of a server that sends these responses, one per connection, and then stops."""

    def serve() -> None:
        for one in answers:
            try:
                connection = listening.accept()[0]
            except OSError:
                return
            with connection, suppress(ssl.SSLError, ConnectionError):
                client = context.wrap_socket(connection, server_side=True) if context else connection
                while b"\r\n\r\n" not in client.recv(4096):
                    pass
                if callable(one):
                    one(client)
                else:
                    client.sendall(one)
                client.close()

    with socket.create_server((host, 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http{'s' if context else ''}://{host}:{listening.getsockname()[1]}/keys"
        finally:
            listening.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
            thread.join()


def tokens_of(url: str, clock: Callable[[], float] | None = None) -> TokenValidator:
    return TokenValidator(OAuthSettings(url, "issuer", frozenset({"kafka"})), lambda: NOW_MS, clock or Time())


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (b"garbage\r\n", "does not speak HTTP: BadStatusLine"),
        (b"", "does not speak HTTP: RemoteDisconnected"),
        (answer(b"x", "200 OK", "X: " + "y" * 70_000), "does not speak HTTP: LineTooLong"),
        (answer(b"zz\r\n", "200 OK", "Transfer-Encoding: chunked"), "does not speak HTTP: IncompleteRead"),
        (answer(b'{"keys":' + b"[" * 200_000), "not a JSON Web Key Set: RecursionError"),
        (answer(b" " * (MAX_BYTES + 1)), f"larger than {MAX_BYTES}"),
        (answer(KEYS[:-1], "200 OK", f"Content-Length: {len(KEYS)}"), "not a JSON Web Key Set"),
        (answer(KEYS, "503 Service Unavailable"), "responded with 503 Service Unavailable"),
        (answer(b"", "302 Found"), "redirects more than"),
    ],
)  # fmt: skip
def test_invalid_response_keeps_the_current_keys(given: bytes, why: str, caplog: pytest.LogCaptureFixture) -> None:
    with serving(answer(), *[given] * (1 + REDIRECTS)) as url:
        clock = Time()
        tokens = tokens_of(url, clock)
        tokens.load()
        clock.now += 3600
        tokens.load_if_due()
        assert why in caplog.messages[-1]
        assert not tokens.is_due
        assert tokens.validate(token()).subject == "alice"
        clock.now += 1
        assert tokens.is_due
        with serving(*[given] * (1 + REDIRECTS)) as other, pytest.raises(ConfigError, match=why):
            tokens_of(other).load()  # as at start


def test_unexpected_exception_does_not_end_periodic_loading(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd:
        asked = 0

        @property
        def is_due(self) -> bool:
            self.asked += 1
            raise RuntimeError("odd")

    async def three_times(_: float) -> None:
        if odd.asked == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(background_tasks, "sleep", three_times)
    odd = Odd()

    async def watch() -> None:
        reload = partial(credentials._reload_keys, [odd], Workers())  # type: ignore[list-item]
        with pytest.raises(asyncio.CancelledError):
            await background_tasks.repeat("reading keys", 1.0, reload)

    asyncio.run(watch())
    assert (odd.asked, len(caplog.messages)) == (3, 3)


@pytest.mark.parametrize("begun", [b"HTTP/1.1 200 OK\r\nX-", answer(b'{"keys": [')], ids=["headers", "body"])
def test_slow_response_ends_at_the_time_limit(begun: bytes) -> None:
    clock = Time()

    def drips(client: socket.socket) -> None:
        client.sendall(begun)
        clock.now += TIMEOUT_S
        client.sendall(b" ")
        client.settimeout(30)
        client.recv(1)  # until it is closed

    with serving(drips) as url, pytest.raises(ConfigError, match="did not send the whole response within 10 s"):
        tokens_of(url, clock).load()


def moved(to: str) -> bytes:
    return answer(b"", "302 Found", f"Location: {to}", "Content-Length: 0")


def test_redirect_to_another_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(moved("/there"), answer()) as url:
        tokens = tokens_of(url)
        tokens.load()
        assert tokens.validate(token()).subject == "alice"
    with serving(answer(), host="127.0.0.2") as other:
        for elsewhere in (other, other.replace("http:", "https:"), "file:///etc/hostname"):
            with serving(moved(elsewhere)) as url, pytest.raises(ConfigError, match="redirects to another server"):
                tokens_of(url).load()
        monkeypatch.setenv("http_proxy", other)
        with serving(answer(b"{}")) as url, pytest.raises(ConfigError, match="KeyError"):
            tokens_of(url).load()


def test_https_server_certificate_is_verified(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem_file(tmp_path / "server.pem")["ssl.keystore.location"])
    with serving(answer(), answer(), context=context) as url:
        with pytest.raises(ConfigError, match="CERTIFICATE_VERIFY_FAILED"):
            tokens_of(url).load()
        (tmp_path / "ca.pem").write_text(authority().certificate)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        tokens = tokens_of(url)
        tokens.load()
        assert tokens.validate(token()).subject == "alice"
    with (
        serving(answer(), context=context, host="127.0.0.2") as url,  # not a name of the certificate's
        pytest.raises(ConfigError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        tokens_of(url).load()


def test_unknown_key_ids_trigger_a_limited_number_of_requests() -> None:
    loads, clock = 0, Time()
    with serving(*[answer()] * 10) as url:
        tokens = tokens_of(url, clock)
        tokens.load()
        for second in range(31):
            clock.now = float(second)
            with pytest.raises(InvalidToken):
                tokens.validate(token(kid=f"invented {second}"))
            if tokens.is_due:
                tokens.load()
                loads += 1
    assert loads == 1 + 30 / MIN_RELOAD_INTERVAL_S


PUBLIC = EC.as_dict(private=False)


@pytest.mark.parametrize(
    "odd",
    [
        {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA", "kid": "odd"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "odd"},
        {"kty": "RSA", "kid": "odd"},
        {"kty": "RSA", "n": "!!", "e": "AQAB", "kid": "odd"},
        {"kty": "RSA", "n": 7, "e": [], "kid": "odd"},
    ],
)
def test_invalid_key_of_a_set_is_ignored(odd: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    keys = parse_jwks(json.dumps({"keys": [odd, PUBLIC, 7, RSA.as_dict(private=False)]}).encode())
    assert [key.kid for key in keys] == ["ec", "rsa"]
    (line,) = caplog.messages
    assert "2 keys" in line
    assert "0 ('odd': " in line
    assert caplog.records[0].levelno == logging.WARNING
    with pytest.raises(ValueError, match="no public key"):
        parse_jwks(json.dumps({"keys": [odd]}).encode())
