"""Credentials of clients: SCRAM users, ACLs and keys of tokens, and the SASL gates that use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.current_config import CurrentConfig
from kafkalog_broker.config.sasl_settings import SaslSettings
from kafkalog_broker.net.sasl_gate import NewSaslGate, SaslGate
from kafkalog_broker.runtime.clock import Clock
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.security.authorizer import Authorizer
from kafkalog_broker.security.jwt import InvalidToken, Token
from kafkalog_broker.security.new_scram_users import NewUser
from kafkalog_broker.security.oauth_tokens import TokenValidator
from kafkalog_broker.security.sasl_exchange import CredentialStore
from kafkalog_broker.security.scram_users import ScramUsers
from kafkalog_broker.startup.background_tasks import repeat, run_until_stop

KEY_CHECK_INTERVAL_S = 1.0  # interval of checks for listeners whose keys are due to be reloaded


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of clients. `tokens` has the token validator of each listener with OAUTHBEARER."""

    scram_users: ScramUsers
    tokens: Mapping[str, TokenValidator]
    clock: Clock

    def new_gate(self, listener: str, current_config: CurrentConfig) -> NewSaslGate:
        """Return a factory of the SASL gates of a listener's connections."""
        tokens = self.tokens.get(listener)
        validate_token = _refuse_token if tokens is None else tokens.validate
        store = CredentialStore(self.scram_users.find_credential, validate_token, self.clock.now_ms)
        settings = partial(_sasl_settings, current_config, listener)
        return partial(SaslGate, settings, store, clock=partial(_monotonic_s, self.clock))


async def load_credentials(
    config: BrokerConfig,
    directories: Sequence[Path],
    authorizer: Authorizer | None,
    new_users: Sequence[NewUser],
    clock: Clock,
    workers: Workers,
) -> Credentials:
    """Load ACLs and SCRAM users, and create the users that are missing.

    Raises:
        KafkalogError: If a file cannot be used.
    """
    if authorizer is not None:
        await workers.run_blocking(authorizer.acls.load, directories)
    scram_users = ScramUsers(directories)
    await workers.run_blocking(scram_users.load, new_users)
    tokens = {
        name: TokenValidator(security.sasl.oauth, clock.now_ms, partial(_monotonic_s, clock))
        for name, security in config.listener_security.items()
        if security.sasl is not None and security.sasl.oauth is not None
    }
    return Credentials(scram_users, tokens, clock)


async def load_keys(credentials: Credentials, workers: Workers, started: AsyncExitStack) -> None:
    """Load the keys of signed tokens, and reload them while the broker runs.

    Raises:
        ConfigError: If keys cannot be loaded. Without them no client of the listener could authenticate.
    """
    signed = [tokens for tokens in credentials.tokens.values() if tokens.is_due]
    for tokens in signed:
        await workers.run_blocking(tokens.load)
    if signed:
        reload = partial(_reload_keys, signed, workers)
        run_until_stop(started, repeat("reading the keys of tokens", KEY_CHECK_INTERVAL_S, reload))


async def _reload_keys(signed: Sequence[TokenValidator], workers: Workers) -> None:
    for tokens in signed:
        if tokens.is_due:
            await workers.run_blocking(tokens.load_if_due)


def _monotonic_s(clock: Clock) -> float:
    """Return the monotonic time of a clock in seconds."""
    return clock.monotonic_ms() / 1000


def _sasl_settings(current_config: CurrentConfig, listener: str) -> SaslSettings:
    settings = current_config.get().listener_security[listener].sasl
    assert settings is not None  # the protocol of a listener does not change
    return settings


def _refuse_token(text: str) -> Token:
    raise InvalidToken("OAUTHBEARER was not enabled when the broker started")
