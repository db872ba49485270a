"""Settings of a mirror's connections, parsed from the librdkafka properties that a mirror supports."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import Parser, boolean, choice, plain_text


def _at_least(lowest: int) -> Parser:
    def parse(name: str, text: str) -> int:
        if not text.strip().isdecimal() or int(text) < lowest:
            raise OptionError(f"{name}: expected an integer of at least {lowest}")
        return int(text)

    return parse


def _setting(default: Any, parse: Parser, *names: str, in_repr: bool = True) -> Any:
    return field(default=default, repr=in_repr, metadata={"names": names, "parse": parse})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings of connections and fetches. Sizes are in bytes, times in ms.

    `max_bytes` bounds the size of a response; up to three responses per node of the source are in memory.
    """

    security_protocol: str = _setting(
        "plaintext", choice("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"), "security.protocol"
    )
    sasl_mechanism: str = _setting(
        "PLAIN", choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"), "sasl.mechanism", "sasl.mechanisms"
    )
    sasl_username: str | None = _setting(None, plain_text, "sasl.username")
    sasl_password: str | None = _setting(None, plain_text, "sasl.password", in_repr=False)
    sasl_kerberos_service_name: str = _setting("kafka", plain_text, "sasl.kerberos.service.name")
    ssl_ca_location: str | None = _setting(None, plain_text, "ssl.ca.location")
    ssl_certificate_location: str | None = _setting(None, plain_text, "ssl.certificate.location")
    ssl_key_location: str | None = _setting(None, plain_text, "ssl.key.location")
    ssl_key_password: str | None = _setting(None, plain_text, "ssl.key.password", in_repr=False)
    check_certificate: bool = _setting(True, boolean, "enable.ssl.certificate.verification")
    check_host_name: bool = _setting(
        True, lambda name, text: text.lower() == "https", "ssl.endpoint.identification.algorithm"
    )
    client_id: str = _setting("kafkalog-mirror", plain_text, "client.id")
    max_wait_ms: int = _setting(500, _at_least(0), "fetch.wait.max.ms")
    min_bytes: int = _setting(1, _at_least(0), "fetch.min.bytes")
    max_bytes: int = _setting(16 << 20, _at_least(1024), "fetch.max.bytes")
    max_partition_bytes: int = _setting(
        4 << 20, _at_least(1024), "max.partition.fetch.bytes", "fetch.message.max.bytes"
    )
    timeout_ms: int = _setting(60_000, _at_least(1000), "socket.timeout.ms")

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None without TLS. Raises OptionError if a file cannot be read."""
        if not self.security_protocol.endswith("ssl"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ssl_ca_location)
            if self.ssl_certificate_location is not None:
                context.load_cert_chain(
                    self.ssl_certificate_location, self.ssl_key_location, lambda: self.ssl_key_password or ""
                )
        except OSError as error:  # ssl.SSLError too
            raise OptionError(f"TLS cannot be set up: {error}", hint="check the ssl.*.location properties") from None
        if not (self.check_host_name and self.check_certificate):
            context.check_hostname = False
        if not self.check_certificate:
            context.verify_mode = ssl.CERT_NONE
        return context


PROPERTIES: Mapping[str, tuple[str, Parser]] = {
    name: (setting.name, setting.metadata["parse"])
    for setting in fields(ClientSettings)
    for name in setting.metadata["names"]
}
"""Field and parser of each property, by librdkafka's name."""


def client_settings(texts: Iterable[str]) -> ClientSettings:
    """Parse properties of the form `name=value`. Raises OptionError, which never contains a password."""
    values: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        name = name.strip()
        if not separator or not name:
            raise OptionError(f"-X {name!r}: expected NAME=VALUE, such as security.protocol=ssl")
        if name not in PROPERTIES:
            raise OptionError(f"-X {name}: unsupported property; a mirror supports {', '.join(PROPERTIES)}")
        attribute, parse = PROPERTIES[name]
        values[attribute] = parse(f"-X {name}", value)
    settings = ClientSettings(**values)
    uses_sasl = settings.security_protocol.startswith("sasl")
    if uses_sasl and settings.sasl_mechanism != "GSSAPI" and None in (settings.sasl_username, settings.sasl_password):
        raise OptionError(
            f"security.protocol={settings.security_protocol} with {settings.sasl_mechanism} needs sasl.username and "
            "sasl.password"
        )
    if settings.ssl_key_location is not None and settings.ssl_certificate_location is None:
        raise OptionError("ssl.key.location is given without ssl.certificate.location")
    return settings
