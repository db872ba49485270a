"""The users of SCRAM: in memory, and in a file that only the broker's user may read.

Kafka keeps them in its controllers' metadata log. Here it is one JSON file, `kafkalog.scram-credentials.json`:

    {"version": 0, "generation": 3, "users": {"SCRAM-SHA-512": {"alice": {"iterations": 4096, "salt": "...", ...}}}}

with bytes in base64. Every log directory gets a copy and the highest generation is read, as with topics.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kafkalog_broker.config.sasl_settings import SCRAM
from kafkalog_broker.security.kept_copies import KeptCopies
from kafkalog_broker.security.scram import Credential
from kafkalog_spark.errors import CorruptFile, UnsupportedFormat

FILE = "kafkalog.scram-credentials.json"
VERSION = 0

Users = dict[str, dict[str, Credential]]
"""Mechanism to name to what is kept."""


class ScramUsers:
    """`load` and `save` are for another thread than the event loop's; `find` sees a change when `use` was called.

    A damaged file is an error where there is no other copy: a broker that forgets its users shuts everybody out.
    """

    def __init__(self, directories: Iterable[Path]) -> None:
        self._kept = KeptCopies(FILE, directories, parse, dump)
        self.users: Mapping[str, Mapping[str, Credential]] = {mechanism: {} for mechanism in SCRAM}

    def find(self, mechanism: str, name: str) -> Credential | None:
        return self.users[mechanism].get(name)

    def load(self) -> None:
        """As KeptCopies.load."""
        found = self._kept.load()
        if found is not None:
            self.users = found

    def save(self, users: Users) -> None:
        """As KeptCopies.save."""
        self._kept.save(users)

    def use(self, users: Users) -> None:
        """From now on."""
        self.users = users

    def copy(self) -> Users:
        """To be changed, saved and used."""
        return {mechanism: dict(users) for mechanism, users in self.users.items()}


def dump(generation: int, users: Mapping[str, Mapping[str, Credential]]) -> bytes:
    content = {
        "version": VERSION,
        "generation": generation,
        "users": {
            mechanism: {name: _as_json(one) for name, one in known.items()} for mechanism, known in users.items()
        },
    }
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode("ascii")


def parse(data: bytes) -> tuple[int, Users]:
    """Raises CorruptFile for anything but what `dump` writes, UnsupportedFormat for a later version."""
    try:
        content = json.loads(data)
        version, generation = content["version"], content["generation"]
        if version != VERSION:
            raise UnsupportedFormat(f"version {version} of {FILE}, only {VERSION} is known")
        found = content["users"]
        users = {name: {user: _from_json(one) for user, one in found.get(name, {}).items()} for name in SCRAM}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(f"this is not the JSON that was written: {type(error).__name__}") from None
    if type(generation) is not int:
        raise CorruptFile("expected version, generation and users")
    return generation, users


def _as_json(one: Credential) -> dict[str, Any]:
    return {
        "iterations": one.iterations,
        "salt": base64.b64encode(one.salt).decode(),
        "stored_key": base64.b64encode(one.stored_key).decode(),
        "server_key": base64.b64encode(one.server_key).decode(),
    }


def _from_json(one: Mapping[str, Any]) -> Credential:
    salt, stored, server = (base64.b64decode(one[key], validate=True) for key in ("salt", "stored_key", "server_key"))
    return Credential(salt, stored, server, int(one["iterations"]))
