"""Validation of the OAUTHBEARER tokens of one listener, with signing keys that are reloaded while the broker runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.oauth_settings import JWKS_URL, OAuthSettings
from kafkalog_broker.runtime.log_rate import LogRate
from kafkalog_broker.security.jwks import parse_jwks, read_jwks
from kafkalog_broker.security.jwt import InvalidToken, Token, check_signed_token, check_unsecured_token

if TYPE_CHECKING:
    from kafkalog_broker.security.jwks import SigningKey

_log = logging.getLogger(__name__)

UNKNOWN_KEY_RETRY_S = 60.0
"""Time after which the same unknown key ID causes another reload of the keys, as in Kafka: tokens with invented IDs
must not cause continuous requests."""

MAX_UNKNOWN_KEYS = 1_000  # limit on remembered unknown key IDs

MIN_RELOAD_INTERVAL_S = 10.0
"""Shortest interval between two reloads because of unknown key IDs. A new key of the server is loaded after this time
at the latest, and tokens with invented IDs cause at most six requests a minute."""


class TokenValidator:
    """Checks the tokens of one listener, with keys that are reloaded (Kafka: RefreshingHttpsJwks).

    `load` blocks on a file or a server; do not call it in the event loop. The other methods use the loaded keys.
    """

    def __init__(self, settings: OAuthSettings, now_ms: Callable[[], int], clock: Callable[[], float]) -> None:
        """
        Args:
            settings: How tokens are checked.
            now_ms: ms since 1970.
            clock: Monotonic seconds.
        """
        self.settings = settings
        self._now_ms = now_ms
        self._clock = clock
        self._keys: tuple[SigningKey, ...] = ()
        self._due = clock()
        self._failures = 0
        self._unknown_key_ids: dict[str, float] = {}  # key ID -> time from which on it may cause another reload
        self._reload_s = -MIN_RELOAD_INTERVAL_S  # due time of the last reload that an unknown key ID caused
        self._refused = LogRate(_log)

    def validate(self, text: str) -> Token:
        """Return the valid token that `text` encodes. A refusal is logged, without the token.

        Raises:
            InvalidToken: If the token is refused.
        """
        try:
            if self.settings.jwks_url is None:
                return check_unsecured_token(text, self.settings, self._now_ms())
            return check_signed_token(text, self._keys, self.settings, self._now_ms())
        except InvalidToken as error:
            if error.key_id is not None:
                self._request_reload(error.key_id)
            self._refused.log(logging.INFO, "a token is refused: %s", error)
            raise

    @property
    def is_due(self) -> bool:
        """True if the keys have to be read."""
        return self.settings.jwks_url is not None and self._clock() >= self._due

    def load(self) -> None:
        """Read the keys. Raises ConfigError if that fails; the loaded keys are then kept."""
        url = self.settings.jwks_url
        assert url is not None
        try:
            self._keys = parse_jwks(read_jwks(url, self._clock))
        except (OSError, ValueError) as error:
            wait_ms = min(self.settings.retry_ms << min(self._failures, 20), self.settings.max_retry_ms)
            self._due = self._clock() + wait_ms / 1000
            self._failures += 1
            raise ConfigError(f"the keys of {url} cannot be read: {error}", name=JWKS_URL) from None
        self._failures = 0
        self._due = self._clock() + self.settings.refresh_ms / 1000

    def load_if_due(self) -> None:
        """Read the keys if they are due. An error is logged."""
        if self.is_due:
            try:
                self.load()
            except ConfigError as error:
                self._refused.log(logging.WARNING, "%s; the previous keys stay in use", error)

    def _request_reload(self, key_id: str) -> None:
        now = self._clock()
        if self._unknown_key_ids.get(key_id, now) <= now:
            if len(self._unknown_key_ids) >= MAX_UNKNOWN_KEYS:
                del self._unknown_key_ids[next(iter(self._unknown_key_ids))]
            self._unknown_key_ids[key_id] = now + UNKNOWN_KEY_RETRY_S
            reload_at_s = max(now, self._reload_s + MIN_RELOAD_INTERVAL_S)
            if not self._failures and reload_at_s < self._due:
                self._due = self._reload_s = reload_at_s
