"""TLS contexts of the listeners, which are replaced when properties or files change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.listener_security import ListenerSecurity
from kafkalog_broker.config.tls_settings import TlsSettings

if TYPE_CHECKING:
    from kafkalog_broker.security.listener_tls import FileStates, ListenerTls

_logger = logging.getLogger(__name__)


class Tls:
    """TLS contexts of all listeners.

    `prepared` and `changed_files` block, because they read files; call `use` in the event loop.
    """

    def __init__(self) -> None:
        self._listeners: Mapping[str, ListenerTls] = {}
        self._refused: dict[str, FileStates] = {}  # state of files that were reported as unusable

    def of(self, listener: str) -> ListenerTls:
        """Return the context for the next connection of a listener."""
        return self._listeners[listener]

    def prepared(self, security: Mapping[str, ListenerSecurity]) -> dict[str, ListenerTls]:
        """Make the contexts of the listeners for `use`; those whose settings and files are unchanged are kept.

        Raises:
            ConfigError: If a file or setting cannot be used. It names the listener.
        """
        made = {}
        for name, wanted in ((name, entry.tls) for name, entry in security.items() if entry.tls):
            now = self._listeners.get(name)
            try:
                if now is None or now.settings != wanted or now.files != now.file_states():
                    now = _made(wanted, now)
            except ConfigError as error:
                raise ConfigError(f"listener {name}: {error.what}", name=error.name, hint=error.hint) from None
            made[name] = now
        return made

    def use(self, made: Mapping[str, ListenerTls]) -> None:
        """Use these contexts for new connections. Open connections are not affected."""
        self._listeners = dict(made)
        self._refused.clear()

    def changed_files(self) -> dict[str, ListenerTls] | None:
        """Return contexts for `use` if certificate files have changed, else None.

        A file that cannot be used, perhaps because it is only partly written, is logged once; the loaded certificate is
        kept.
        """
        made = {}
        for name, now in self._listeners.items():
            states = now.file_states()
            if states in (now.files, self._refused.get(name)):
                continue
            try:
                made[name] = _made(now.settings, now)
            except ConfigError as error:
                self._refused[name] = states
                _logger.error("listener %s keeps its old certificate: %s", name, error)
            else:
                _logger.info("listener %s uses the certificates of the changed files", name)
        return {**self._listeners, **made} if made else None


def _made(settings: TlsSettings, before: ListenerTls | None) -> ListenerTls:
    from kafkalog_broker.security.listener_tls import ListenerTls  # with cryptography, so only with TLS

    made = ListenerTls(settings)
    if before is not None:
        made.check_follows(before)
    return made
