"""SCRAM users of the option --add-scram."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.sasl_settings import SCRAM_MECHANISMS
from kafkalog_broker.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, Credential, derive_credential, salt_password

SALT_BYTES = 16
_FORM = re.compile(r"(?P<mechanism>[^=\s]+)=\[(?P<fields>.*)\]", re.DOTALL)
_FIELD = re.compile(
    r'\s*(?P<name>name|password|salt|iterations|saltedpassword)=(?:"(?P<quoted>[^"]*)"|(?P<plain>[^,]*))\s*(?:,|$)'
)
_EXAMPLE = "expected SCRAM-SHA-512=[name=alice,password=...], optionally with salt, iterations or saltedpassword"


@dataclass(frozen=True, slots=True)
class NewUser:
    """A user to create at the start, unless it exists."""

    mechanism: str
    name: str
    credential: Credential = field(repr=False)


def parse_add_scram(texts: Iterable[str]) -> list[NewUser]:
    """Parse values of --add-scram, which have the form of Kafka's `kafka-storage format --add-scram`.

    Raises:
        ConfigError: If a value is malformed. The error does not quote passwords.
    """
    return [_parse_user(text) for text in texts]


def _parse_user(text: str) -> NewUser:
    form = _FORM.fullmatch(text.strip())
    if form is None or form["mechanism"] not in SCRAM_MECHANISMS:
        raise ConfigError(f"--add-scram: the mechanism must be one of {', '.join(SCRAM_MECHANISMS)}", hint=_EXAMPLE)
    fields = {}
    position = 0
    while position < len(form["fields"]):
        field_match = _FIELD.match(form["fields"], position)
        if field_match is None or field_match["name"] in fields:
            raise ConfigError("--add-scram: a field is unknown or repeated", hint=_EXAMPLE)
        fields[field_match["name"]] = (
            field_match["quoted"] if field_match["quoted"] is not None else field_match["plain"].strip()
        )
        position = field_match.end()
    if not fields.get("name"):
        raise ConfigError("--add-scram: the name is missing", hint=_EXAMPLE)
    if bool(fields.get("password")) == bool(fields.get("saltedpassword")):
        raise ConfigError("--add-scram: expected either password or saltedpassword", hint=_EXAMPLE)
    if "saltedpassword" in fields and "salt" not in fields:
        raise ConfigError("--add-scram: saltedpassword needs salt", hint=_EXAMPLE)
    iterations = _parse_iterations(fields.get("iterations"))
    salt = _decode_base64("salt", fields["salt"]) if "salt" in fields else secrets.token_bytes(SALT_BYTES)
    if "saltedpassword" in fields:
        salted_password = _decode_base64("saltedpassword", fields["saltedpassword"])
    else:
        salted_password = salt_password(form["mechanism"], fields["password"], salt, iterations)
    return NewUser(
        form["mechanism"], fields["name"], derive_credential(form["mechanism"], salted_password, salt, iterations)
    )


def _parse_iterations(text: str | None) -> int:
    if text is None:
        return MIN_ITERATIONS
    if not text.isdecimal() or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise ConfigError(f"--add-scram: iterations must be {MIN_ITERATIONS} to {MAX_ITERATIONS}", hint=_EXAMPLE)
    return int(text)


def _decode_base64(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ConfigError(f"--add-scram: {name} is not base64", hint=_EXAMPLE) from None
