"""TLS of one listener: its SSLContext, the principals of client certificates, and changes of its certificate files."""

from __future__ import annotations

import os

from cryptography import x509

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.tls_settings import TlsSettings
from kafkalog_broker.protocol.connection_info import ANONYMOUS
from kafkalog_broker.security.principal_mapping import distinguished_name, parse_rules, principal_name
from kafkalog_broker.security.tls_context import tls_context

FileStates = tuple[tuple[int, int, int] | None, ...]
"""Time of modification in ns, size and inode of each file; None for a missing file."""


class ListenerTls:
    """TLS context and principal mapping for new connections of a listener.

    The constructor reads files; do not call it in the event loop.

    Raises:
        ConfigError: If a file or a setting cannot be used.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self.files = self.file_states()  # before reading, so that a change during reading is noticed
        self.rules = parse_rules(settings.principal_mapping_rules)
        self.context, self.identity = tls_context(settings)

    def principal(self, certificate: bytes | None) -> str:
        """Return the principal of a peer's certificate (DER), ANONYMOUS without one. Raises AuthenticationFailed."""
        if certificate is None:
            return ANONYMOUS
        return f"User:{principal_name(self.rules, distinguished_name(x509.load_der_x509_certificate(certificate)))}"

    def check_follows(self, old: ListenerTls) -> None:
        """Refuse a certificate whose names differ from the old one's, because clients that check them would fail.

        Kafka: SslFactory.CertificateEntries.

        Raises:
            ConfigError: If names differ and ssl.allow.dn.changes or ssl.allow.san.changes does not allow it.
        """
        new = self.identity.chain[0]
        before = old.identity.chain[0]
        if new.subject != before.subject and not self.settings.allow_dn_changes:
            raise ConfigError(
                f"the distinguished name of the new certificate is {distinguished_name(new)}, the old one has "
                f"{distinguished_name(before)}",
                hint="if the change is intended, start with ssl.allow.dn.changes=true",
            )
        missing = _subject_alternative_names(before) - _subject_alternative_names(new)
        if missing and not self.settings.allow_san_changes:
            raise ConfigError(
                f"the new certificate lacks subject alternative names of the old one: {', '.join(sorted(missing))}",
                hint="if the change is intended, start with ssl.allow.san.changes=true",
            )

    def file_states(self) -> FileStates:
        """Return the present state of the files."""
        return tuple(map(_file_state, self.settings.files))


def _file_state(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _subject_alternative_names(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}
