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

    `prepare` and `changed_files` block, because they read files; call `use` in the event loop.
    """

    def __init__(self) -> None:
        self._listeners: Mapping[str, ListenerTls] = {}
        self._unusable_files: dict[str, FileStates] = {}  # states of files that could not be used

    def for_listener(self, listener: str) -> ListenerTls:
        """Return the TLS of a listener for its next connection."""
        return self._listeners[listener]

    def prepare(self, security: Mapping[str, ListenerSecurity]) -> dict[str, ListenerTls]:
        """Make the contexts of the listeners for `use`; those whose settings and files are unchanged are kept.

        Raises:
            ConfigError: If a file or setting cannot be used. It names the listener.
        """
        contexts = {}
        for name, settings in ((name, entry.tls) for name, entry in security.items() if entry.tls):
            context = self._listeners.get(name)
            try:
                if context is None or context.settings != settings or context.files != context.file_states():
                    context = _load(settings, context)
            except ConfigError as error:
                raise ConfigError(f"listener {name}: {error.what}", name=error.name, hint=error.hint) from None
            contexts[name] = context
        return contexts

    def use(self, contexts: Mapping[str, ListenerTls]) -> None:
        """Use these contexts for new connections. Open connections are not affected."""
        self._listeners = dict(contexts)
        self._unusable_files.clear()

    def changed_files(self) -> dict[str, ListenerTls] | None:
        """Return contexts for `use` if certificate files have changed, else None.

        A file that cannot be used, perhaps because it is only partly written, is logged once; the loaded certificate is
        kept.
        """
        contexts = {}
        for name, context in self._listeners.items():
            states = context.file_states()
            if states in (context.files, self._unusable_files.get(name)):
                continue
            try:
                contexts[name] = _load(context.settings, context)
            except ConfigError as error:
                self._unusable_files[name] = states
                _logger.error("listener %s keeps its old certificate: %s", name, error)
            else:
                _logger.info("listener %s uses the certificates of the changed files", name)
        return {**self._listeners, **contexts} if contexts else None


def _load(settings: TlsSettings, old: ListenerTls | None) -> ListenerTls:
    """Load the files of a listener, and check that the certificate may replace the old one."""
    from kafkalog_broker.security.listener_tls import ListenerTls  # with cryptography, so only with TLS

    new = ListenerTls(settings)
    if old is not None:
        new.check_follows(old)
    return new
