"""librdkafka's property names for how to reach a cluster, as far as a mirror has a use for them."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import Parser, boolean, choice, plain_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How to reach a cluster, and how much to ask for at once. Sizes in bytes, times in ms.

    max_bytes bounds the memory that a response takes; a node of the source has up to three in memory.
    """

    security_protocol: str = "plaintext"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_kerberos_service_name: str = "kafka"
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    check_certificate: bool = True
    check_host_name: bool = True
    client_id: str = "kafkalog-mirror"
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 16 << 20
    max_partition_bytes: int = 4 << 20
    timeout_ms: int = 60_000

    def tls_context(self) -> ssl.SSLContext | None:
        """Raises OptionError for files that cannot be read."""
        if not self.security_protocol.endswith("ssl"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ssl_ca_location)
            if self.ssl_certificate_location is not None:
                context.load_cert_chain(
                    self.ssl_certificate_location, self.ssl_key_location, lambda: self.ssl_key_password or ""
                )
        except OSError as error:  # ssl.SSLError too
            raise OptionError(f"TLS cannot be set up: {error}", hint="look at the ssl.*.location properties") from None
        if not (self.check_host_name and self.check_certificate):
            context.check_hostname = False
        if not self.check_certificate:
            context.verify_mode = ssl.CERT_NONE
        return context


def _number(lowest: int) -> Parser:
    def parse(name: str, text: str) -> int:
        if not text.strip().isdecimal() or int(text) < lowest:
            raise OptionError(f"{name}: expected a whole number from {lowest} on")
        return int(text)

    return parse


_MECHANISM = choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")

PROPERTIES: Mapping[str, tuple[str, Parser]] = {
    "security.protocol": ("security_protocol", choice("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")),
    "sasl.mechanism": ("sasl_mechanism", _MECHANISM),
    "sasl.mechanisms": ("sasl_mechanism", _MECHANISM),
    "sasl.username": ("sasl_username", plain_text),
    "sasl.password": ("sasl_password", plain_text),
    "sasl.kerberos.service.name": ("sasl_kerberos_service_name", plain_text),
    "ssl.ca.location": ("ssl_ca_location", plain_text),
    "ssl.certificate.location": ("ssl_certificate_location", plain_text),
    "ssl.key.location": ("ssl_key_location", plain_text),
    "ssl.key.password": ("ssl_key_password", plain_text),
    "enable.ssl.certificate.verification": ("check_certificate", boolean),
    "ssl.endpoint.identification.algorithm": ("check_host_name", lambda name, text: text.lower() == "https"),
    "client.id": ("client_id", plain_text),
    "fetch.wait.max.ms": ("max_wait_ms", _number(0)),
    "fetch.min.bytes": ("min_bytes", _number(0)),
    "fetch.max.bytes": ("max_bytes", _number(1024)),
    "max.partition.fetch.bytes": ("max_partition_bytes", _number(1024)),
    "fetch.message.max.bytes": ("max_partition_bytes", _number(1024)),
    "socket.timeout.ms": ("timeout_ms", _number(1000)),
}
"""librdkafka's name: (field, parser)."""


def client_settings(texts: Iterable[str]) -> ClientSettings:
    """Properties of `name=value` texts. Raises OptionError, which never quotes a value of a password."""
    fields: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        name = name.strip()
        if not separator or not name:
            raise OptionError(f"-X {name!r}: expected NAME=VALUE, such as security.protocol=ssl")
        if name not in PROPERTIES:
            raise OptionError(f"-X {name}: a mirror has no use for it; known are {', '.join(PROPERTIES)}")
        attribute, parse = PROPERTIES[name]
        fields[attribute] = parse(f"-X {name}", value)
    settings = ClientSettings(**fields)
    uses_sasl = settings.security_protocol.startswith("sasl")
    if uses_sasl and settings.sasl_mechanism != "GSSAPI" and None in (settings.sasl_username, settings.sasl_password):
        raise OptionError(
            f"security.protocol={settings.security_protocol} with {settings.sasl_mechanism} needs sasl.username and "
            "sasl.password"
        )
    if settings.ssl_key_location is not None and settings.ssl_certificate_location is None:
        raise OptionError("ssl.key.location is given without ssl.certificate.location")
    return settings
