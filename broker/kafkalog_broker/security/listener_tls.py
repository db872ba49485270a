"""TLS of one listener, made of its settings and the files that they name."""

from __future__ import annotations

import os
import ssl

from cryptography import x509

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.tls_settings import TlsSettings
from kafkalog_broker.protocol.api_registry import ANONYMOUS
from kafkalog_broker.security.certificates import Identity
from kafkalog_broker.security.principal_mapping import distinguished_name, parse_rules, principal_name
from kafkalog_broker.security.tls_context import tls_context

FileStates = tuple[tuple[int, int, int] | None, ...]
"""Time of modification in ns, size and inode of each file; None: it is not there."""


class ListenerTls:
    """One listener's. Made from files, so not in the event loop's thread. Raises ConfigError."""

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self.files = file_states(settings)  # before they are read: what changes meanwhile is read again
        self.rules = parse_rules(settings.principal_mapping_rules)
        self.context: ssl.SSLContext
        self.identity: Identity
        self.context, self.identity = tls_context(settings)

    def principal(self, certificate: bytes | None) -> str:
        """Whom a peer's certificate, in DER, stands for; ANONYMOUS without one. Raises NotAuthenticated."""
        if certificate is None:
            return ANONYMOUS
        return f"User:{principal_name(self.rules, distinguished_name(x509.load_der_x509_certificate(certificate)))}"

    def check_follows(self, old: ListenerTls) -> None:
        """Raises ConfigError where the certificate's names are others and must not be, so that clients which check
        them do not fail (SslFactory.CertificateEntries)."""
        new, before = self.identity.chain[0], old.identity.chain[0]
        if new.subject != before.subject and not self.settings.allow_dn_changes:
            raise ConfigError(
                f"the distinguished name of the new certificate is {distinguished_name(new)}, it was "
                f"{distinguished_name(before)}",
                hint="set ssl.allow.dn.changes=true at start if that is meant",
            )
        missing = _names(before) - _names(new)
        if missing and not self.settings.allow_san_changes:
            raise ConfigError(
                f"the new certificate lacks subject alternative names of the old one: {', '.join(sorted(missing))}",
                hint="set ssl.allow.san.changes=true at start if that is meant",
            )

    def is_stale(self, settings: TlsSettings) -> bool:
        """Whether `settings` are others than these, or a file has changed since it was read."""
        return settings != self.settings or self.files != file_states(settings)


def file_states(settings: TlsSettings) -> FileStates:
    """To see that they have changed. Looks at the files."""
    return tuple(map(_state, settings.files))


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}
