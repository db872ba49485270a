"""From the settings of Kafka's Java clients to those of librdkafka's, for every kind of client: what has another name,
or Java's own notation. Most have the same name in both (security.protocol, sasl.mechanism, ssl.ca.location ...).

Kafka: CommonClientConfigs, SaslConfigs, SslConfigs; librdkafka: CONFIGURATION.md.
"""

from __future__ import annotations

from kafkalog_spark.errors import OptionError
from kafkalog_spark.spark.jaas import parse_jaas

RENAMED = {
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Java's name, and librdkafka's for the same value."""

_WITH_PASSWORD = ("PlainLoginModule", "ScramLoginModule")


def translated(name: str, text: str) -> dict[str, str] | None:
    """A setting of Kafka's Java client, without the prefix `kafka.`, as librdkafka has it; None where name and value
    are the same there. Raises OptionError for a value of `sasl.jaas.config` that cannot be translated."""
    if name == "sasl.jaas.config":
        return _login(text)
    if name == "ssl.endpoint.identification.algorithm" and not text:
        return {name: "none"}
    if name in RENAMED:
        # -1 leaves a socket's buffer to the operating system: 0 in librdkafka
        return {RENAMED[name]: "0" if text == "-1" else text}
    return None


def _login(text: str) -> dict[str, str]:
    """User and password of a line of JAAS. The text is in no message: it holds the password."""
    try:
        module, options = parse_jaas(text.rstrip().removesuffix(";") + ";")
    except ValueError:
        module, options = "", {}
    if module.rpartition(".")[2] not in _WITH_PASSWORD or not {"username", "password"} <= options.keys():
        raise OptionError(
            "option 'kafka.sasl.jaas.config' names no user and password of PlainLoginModule or ScramLoginModule",
            hint="give librdkafka's settings instead: kafka.sasl.username and kafka.sasl.password, or those of OAuth "
            "(kafka.sasl.oauthbearer.*) or Kerberos (kafka.sasl.kerberos.*)",
        )
    return {"sasl.username": options["username"], "sasl.password": options["password"]}
