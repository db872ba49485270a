"""The deadline for authentication on a listener with SASL."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial

import pytest

from kafkalog_broker import api
from kafkalog_broker.config.sasl_settings import SaslSettings
from kafkalog_broker.net import connection
from kafkalog_broker.net.dispatch import dispatcher
from kafkalog_broker.net.sasl_gate import SaslGate
from kafkalog_broker.protocol.client_messages import plain_login_requests
from kafkalog_broker.security.jwt import InvalidToken, Token
from kafkalog_broker.security.sasl_exchange import CredentialStore
from kafkalog_broker.testing_support.client_requests import frame_of
from tests.broker.net.helpers import fakes
from tests.broker.net.helpers.fakes import listen, only_connection


def no_token(text: str) -> Token:
    raise InvalidToken(text)


SETTINGS = SaslSettings(("PLAIN",), {"alice": "secret"}, {"PLAIN": 0}, 1000, 0)
GATE = partial(SaslGate, lambda: SETTINGS, CredentialStore(lambda mechanism, name: None, no_token, lambda: 0))


def test_connection_without_authentication_in_time_is_closed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.load_all()

    async def test() -> None:
        network = fakes.network(dispatcher(None))
        port = (await listen(network, "SASL_PLAINTEXT", "127.0.0.1", 0, new_gate=GATE)).port
        frames = [frame_of(request) for request in plain_login_requests("alice", "secret")]
        sent = [len(frame).to_bytes(4, "big") + frame for frame in frames]
        reader, good = await asyncio.open_connection("127.0.0.1", port)
        for part in sent:
            good.write(part)
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        authenticated = only_connection(network)
        assert authenticated._authentication_deadline is None
        monkeypatch.setattr(connection, "AUTHENTICATION_TIMEOUT_S", 0.05)
        strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for (_, writer), some in zip(strangers, (b"", sent[0][:9], sent[0]), strict=True):
            writer.write(some)
        for stranger, _ in strangers:
            with contextlib.suppress(ConnectionError):
                await stranger.read()  # until it is closed
        assert network.quotas.open == {authenticated}
        for writer in (good, *(writer for _, writer in strangers)):
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await network.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(test())
    assert sum("it has not authenticated in" in record.message for record in caplog.records) == 3
