"""TLS of the listeners: what new connections get, made anew when properties or files change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.listeners import ListenerSecurity

if TYPE_CHECKING:
    from kafkalog_broker.security.tls_context import FileStates, ListenerTls

_logger = logging.getLogger(__name__)


class Tls:
    """TLS contexts of all listeners. `prepared` and `changed_files` read files; `use` is for the event loop's
    thread."""

    def __init__(self) -> None:
        self._listeners: Mapping[str, ListenerTls] = {}
        self._refused: dict[str, FileStates] = {}  # files that were reported as unusable, as they were then

    def of(self, listener: str) -> ListenerTls:
        """Context of a new connection."""
        return self._listeners[listener]

    def prepared(self, security: Mapping[str, ListenerSecurity]) -> dict[str, ListenerTls]:
        """New contexts of the listeners; unchanged ones are kept. Raises ConfigError, naming the listener."""
        secured = {name: one.tls for name, one in security.items() if one.tls is not None}
        if not secured:
            return {}
        from kafkalog_broker.security.tls_context import ListenerTls  # with cryptography: only where there is TLS

        made: dict[str, ListenerTls] = {}
        for name, wanted in secured.items():
            now = self._listeners.get(name)
            if now is not None and not now.is_stale(wanted):
                made[name] = now
                continue
            try:
                made[name] = ListenerTls(wanted)
                if now is not None:
                    made[name].check_follows(now)
            except ConfigError as error:
                raise ConfigError(f"listener {name}: {error.what}", name=error.name, hint=error.hint) from None
        return made

    def use(self, made: Mapping[str, ListenerTls]) -> None:
        """For connections that come from now on; those that are open keep what they have."""
        self._listeners = dict(made)
        self._refused.clear()

    def changed_files(self) -> dict[str, ListenerTls] | None:
        """Contexts for `use` where certificate files have changed, else None. A file that cannot be used, half
        written perhaps, is logged once, and the certificate that was read before stays."""
        if not self._listeners:
            return None
        from kafkalog_broker.security.tls_context import ListenerTls, file_states

        made = dict(self._listeners)
        for name, now in self._listeners.items():
            states = file_states(now.settings)
            if states in (now.files, self._refused.get(name)):
                continue
            try:
                new = ListenerTls(now.settings)
                new.check_follows(now)
            except ConfigError as error:
                self._refused[name] = states
                _logger.error("listener %s goes on with its old certificate: %s", name, error)
                continue
            made[name] = new
            _logger.info("listener %s takes its certificates from the files that have changed", name)
        return made if any(made[name] is not now for name, now in self._listeners.items()) else None
