"""SCRAM users of the option --add-scram."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.sasl_settings import SCRAM_MECHANISMS
from kafkalog_broker.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, Credential, credential, salted

SALT_BYTES = 16
_FORM = re.compile(r"(?P<mechanism>[^=\s]+)=\[(?P<fields>.*)\]", re.DOTALL)
_FIELD = re.compile(
    r'\s*(?P<name>name|password|salt|iterations|saltedpassword)=(?:"(?P<quoted>[^"]*)"|(?P<plain>[^,]*))\s*(?:,|$)'
)
_EXAMPLE = "expected SCRAM-SHA-512=[name=alice,password=...], with salt, iterations and saltedpassword where needed"


@dataclass(frozen=True, slots=True)
class NewUser:
    """User that is created at the start if it does not exist."""

    mechanism: str
    name: str
    credential: Credential = field(repr=False)


def parse_add_scram(texts: Iterable[str]) -> list[NewUser]:
    """Parse the values of --add-scram, whose form is that of Kafka's storage tool.

    Raises:
        ConfigError: If a value is malformed. The error does not quote passwords.
    """
    return [_parsed(text) for text in texts]


def _parsed(text: str) -> NewUser:
    form = _FORM.fullmatch(text.strip())
    if form is None or form["mechanism"] not in SCRAM_MECHANISMS:
        raise ConfigError(f"--add-scram: the mechanism is one of {', '.join(SCRAM_MECHANISMS)}", hint=_EXAMPLE)
    fields, position = {}, 0
    while position < len(form["fields"]):
        found = _FIELD.match(form["fields"], position)
        if found is None or found["name"] in fields:
            raise ConfigError("--add-scram: a field is unknown or there twice", hint=_EXAMPLE)
        fields[found["name"]] = found["quoted"] if found["quoted"] is not None else found["plain"].strip()
        position = found.end()
    if not fields.get("name"):
        raise ConfigError("--add-scram: there is no name", hint=_EXAMPLE)
    if bool(fields.get("password")) == bool(fields.get("saltedpassword")):
        raise ConfigError("--add-scram: either password or saltedpassword is needed", hint=_EXAMPLE)
    if "saltedpassword" in fields and "salt" not in fields:
        raise ConfigError("--add-scram: with saltedpassword its salt is needed", hint=_EXAMPLE)
    iterations = _iterations(fields.get("iterations"))
    salt = _base64("salt", fields["salt"]) if "salt" in fields else secrets.token_bytes(SALT_BYTES)
    if "saltedpassword" in fields:
        key = _base64("saltedpassword", fields["saltedpassword"])
    else:
        key = salted(form["mechanism"], fields["password"], salt, iterations)
    return NewUser(form["mechanism"], fields["name"], credential(form["mechanism"], key, salt, iterations))


def _iterations(text: str | None) -> int:
    if text is None:
        return MIN_ITERATIONS
    if not text.isdecimal() or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise ConfigError(f"--add-scram: iterations are {MIN_ITERATIONS} to {MAX_ITERATIONS}", hint=_EXAMPLE)
    return int(text)


def _base64(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ConfigError(f"--add-scram: {name} is no base64", hint=_EXAMPLE) from None
