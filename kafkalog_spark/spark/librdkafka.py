"""From the settings of Kafka's Java clients to those of librdkafka's, for every kind of client: what has another name,
or Java's own notation. Most have the same name in both (security.protocol, sasl.mechanism, ssl.ca.location ...).

Kafka: CommonClientConfigs, SaslConfigs, SslConfigs; librdkafka: CONFIGURATION.md.
"""

from __future__ import annotations

import re

from kafkalog_spark.errors import OptionError

RENAMED = {
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Java's name, and librdkafka's for the same value."""

_LOGIN = re.compile(r"\s*([\w.]+)\s+(?:required|requisite|sufficient|optional)\s+(.*?);?\s*", re.DOTALL)
_LOGIN_OPTION = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))')
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
    found = _LOGIN.fullmatch(text)
    module = found[1].rpartition(".")[2] if found else ""
    options = {
        match[1]: re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
        for match in _LOGIN_OPTION.finditer(found[2] if found else "")
    }
    if module not in _WITH_PASSWORD or not {"username", "password"} <= options.keys():
        raise OptionError(
            "option 'kafka.sasl.jaas.config' names no user and password of PlainLoginModule or ScramLoginModule",
            hint="give librdkafka's settings instead: kafka.sasl.username and kafka.sasl.password, or those of OAuth "
            "(kafka.sasl.oauthbearer.*) or Kerberos (kafka.sasl.kerberos.*)",
        )
    return {"sasl.username": options["username"], "sasl.password": options["password"]}
