"""The keys that tokens are signed with, read from a file or a server, again and again (RefreshingHttpsJwks).

`load` waits for the file or the server and is for another thread than the event loop's. Everything else decides with
the keys that are there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.listener_security import ListenerSecurity
from kafkalog_broker.config.oauth_settings import URL, OAuthSettings
from kafkalog_broker.log_rate import LogRate
from kafkalog_broker.security.oauth_tokens import InvalidToken, Token, parse_jwks, signed_token, unsecured_token

if TYPE_CHECKING:
    from kafkalog_broker.security.oauth_tokens import SigningKey

UNKNOWN_AGAIN_S = 60.0
"""A key id that is still unknown after keys were read is looked for again after so long, as in Kafka: tokens with
invented ids must not make the broker ask all the time."""
UNKNOWN_IDS = 1_000
"""Of how many such ids that is remembered."""
LOOK_AGAIN_S = 10.0
"""The least time between two readings that unknown ids cause, whatever their number: a new key of the server's is
known after that at the latest, and who invents ids makes the broker ask six times a minute."""

_log = logging.getLogger(__name__)


class Tokens:
    """What the tokens of one listener say. now_ms: since 1970. clock: seconds of a clock that never goes back."""

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
        """Whether `load` is to be called."""
        return self.settings.jwks_url is not None and self._clock() >= self._due

    def load(self) -> None:
        """Read the keys. Raises ConfigError; the keys that were there stay."""
        from kafkalog_broker.security.jwks_source import read_jwks  # 30 ms, so who has no such tokens does without

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
        """As `load`; what goes wrong is one line in the log."""
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


class ListenerTokens:
    """The tokens of all listeners with OAUTHBEARER. now_ms, clock: as of Tokens."""

    def __init__(self, now_ms: Callable[[], int], clock: Callable[[], float]) -> None:
        self._now_ms, self._clock = now_ms, clock
        self._of: dict[str, Tokens] = {}

    def use(self, security: Mapping[str, ListenerSecurity]) -> None:
        """security: by listener."""
        for name, one in security.items():
            if one.sasl is not None and one.sasl.oauth is not None:
                self._of[name] = Tokens(one.sasl.oauth, self._now_ms, self._clock)

    def check(self, listener: str, text: str) -> Token:
        """As Tokens.check."""
        return self._of[listener].check(text)

    @property
    def have_keys(self) -> bool:
        return any(tokens.settings.jwks_url is not None for tokens in self._of.values())

    @property
    def is_due(self) -> bool:
        return any(tokens.is_due for tokens in self._of.values())

    def load(self) -> None:
        """At start. Raises ConfigError: without keys everybody would be shut out."""
        for tokens in self._of.values():
            if tokens.is_due:
                tokens.load()

    def load_if_due(self) -> None:
        for tokens in self._of.values():
            tokens.load_if_due()
