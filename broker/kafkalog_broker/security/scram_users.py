"""The users of SCRAM: in memory, and in the file `kafkalog.scram-credentials.json`:

    {"version": 0, "generation": 3, "users": {"SCRAM-SHA-512": {"alice": {"iterations": 4096, "salt": "...", ...}}}}

with bytes in base64.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.sasl_settings import SCRAM
from kafkalog_broker.config.state_copies import StateCopies
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, Credential, credential, salted

FILE = "kafkalog.scram-credentials.json"
_KEYS = ("salt", "stored_key", "server_key")

Users = dict[str, dict[str, Credential]]  # mechanism to name to what is kept


class ScramUsers:
    """`load` and `copies.save` are for another thread than the event loop's. A damaged file is an error where there is
    no other copy: a broker that forgets its users shuts everybody out."""

    def __init__(self, directories: Iterable[Path]) -> None:
        self.copies = StateCopies(FILE, directories, _encoded, _decoded)
        self.users: Users = {mechanism: {} for mechanism in SCRAM}

    def find(self, mechanism: str, name: str) -> Credential | None:
        return self.users[mechanism].get(name)

    def load(self, new: Iterable[NewUser] = ()) -> None:
        """Read the newest copy, as StateCopies.load. Those of `new` that are not there are added and saved."""
        users = self.copies.load() or self.users
        missing = [user for user in new if user.name not in users[user.mechanism]]
        for user in missing:
            users[user.mechanism][user.name] = user.kept
        if missing:
            self.copies.save(users)
        self.users = users

    def copy(self) -> Users:
        """To be changed, saved and used."""
        return {mechanism: dict(users) for mechanism, users in self.users.items()}


def _encoded(users: Users) -> dict[str, Any]:
    def plain(kept: Credential) -> dict[str, Any]:
        keys = {name: base64.b64encode(getattr(kept, name)).decode() for name in _KEYS}
        return {"iterations": kept.iterations, **keys}

    return {"users": {name: {user: plain(kept) for user, kept in known.items()} for name, known in users.items()}}


def _decoded(state: Mapping[str, Any]) -> Users:
    def kept(plain: Mapping[str, Any]) -> Credential:
        keys = {name: base64.b64decode(plain[name], validate=True) for name in _KEYS}
        return Credential(iterations=int(plain["iterations"]), **keys)

    users = state["users"]
    return {name: {user: kept(plain) for user, plain in users.get(name, {}).items()} for name in SCRAM}


Outcome = tuple[ErrorCode, str | None]

_NUMBERS = {1: SCRAM[0], 2: SCRAM[1]}  # mechanisms as the protocol numbers them


def number_of(mechanism: str) -> int:
    return SCRAM.index(mechanism) + 1


def changed(users: Users, request: Any) -> dict[str, Outcome]:
    """Make the changes of an AlterUserScramCredentials in `users`, as ScramControlManager; what became of each user.
    One that is named twice is not changed."""
    planned: dict[str, Any] = {}
    failed: dict[str, Outcome] = {}
    for change in (*request.deletions, *request.upsertions):
        if change.name in failed:
            continue
        if planned.pop(change.name, None) is not None:
            outcome: Outcome | None = (
                ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"
            )  # fmt: skip
        else:
            outcome = _wrong(change, users)
        if outcome is None:
            planned[change.name] = change
        else:
            failed[change.name] = outcome
    for name, change in planned.items():
        mechanism = _NUMBERS[change.mechanism]
        if _is_deletion(change):
            del users[mechanism][name]
        else:
            users[mechanism][name] = credential(mechanism, change.salted_password, change.salt, change.iterations)
    return dict.fromkeys(planned, (ErrorCode.none, None)) | failed


def _is_deletion(change: Any) -> bool:
    return not hasattr(change, "iterations")


def _wrong(change: Any, users: Users) -> Outcome | None:
    if not change.name:
        return ErrorCode.unacceptable_credential, "Username must not be empty"
    mechanism = _NUMBERS.get(change.mechanism)
    if mechanism is None:
        return ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"
    if _is_deletion(change):
        if change.name in users[mechanism]:
            return None
        return ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"
    if change.iterations < MIN_ITERATIONS:
        return ErrorCode.unacceptable_credential, "Too few iterations"
    if change.iterations > MAX_ITERATIONS:
        return ErrorCode.unacceptable_credential, "Too many iterations"
    if not change.salted_password:
        return ErrorCode.unknown_server_error, None  # as Kafka, whose cryptography takes no empty key
    return None


SALT_BYTES = 16
_FORM = re.compile(r"(?P<mechanism>[^=\s]+)=\[(?P<fields>.*)\]", re.DOTALL)
_FIELD = re.compile(
    r'\s*(?P<name>name|password|salt|iterations|saltedpassword)=(?:"(?P<quoted>[^"]*)"|(?P<plain>[^,]*))\s*(?:,|$)'
)
_EXAMPLE = "expected SCRAM-SHA-512=[name=alice,password=...], with salt, iterations and saltedpassword where needed"


@dataclass(frozen=True, slots=True)
class NewUser:
    """User that is to be there when the broker starts."""

    mechanism: str
    name: str
    kept: Credential = field(repr=False)


def parse_add_scram(texts: Iterable[str]) -> list[NewUser]:
    """--add-scram, as Kafka's storage tool takes it. Raises ConfigError, which shows nothing of a password."""
    return [_parsed(text) for text in texts]


def _parsed(text: str) -> NewUser:
    form = _FORM.fullmatch(text.strip())
    if form is None or form["mechanism"] not in SCRAM:
        raise ConfigError(f"--add-scram: the mechanism is one of {', '.join(SCRAM)}", hint=_EXAMPLE)
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
