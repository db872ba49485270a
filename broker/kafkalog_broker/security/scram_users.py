"""SCRAM users, which are stored in `kafkalog.scram-credentials.json`.

The format, with bytes in base64:

    {"version": 0, "generation": 3, "users": {"SCRAM-SHA-512": {"alice": {"iterations": 4096, "salt": "...", ...}}}}
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kafkalog_broker.config.sasl_settings import SCRAM_MECHANISMS
from kafkalog_broker.config.state_copies import StateCopies
from kafkalog_broker.security.new_scram_users import NewUser
from kafkalog_broker.security.scram import Credential

FILE = "kafkalog.scram-credentials.json"
_BYTES_FIELDS = ("salt", "stored_key", "server_key")  # of Credential

Users = dict[str, dict[str, Credential]]  # stored credentials by mechanism and name


class ScramUsers:
    """SCRAM users in memory, and their file.

    `load` and `copies.save` block; do not call them in the event loop.

    Attributes:
        copies: The file, with a copy in each log directory.
        users: Stored credentials. To change them, save a changed copy and then replace them.
    """

    def __init__(self, directories: Iterable[Path]) -> None:
        self.copies = StateCopies(FILE, directories, _encode, _decode)
        self.users: Users = {mechanism: {} for mechanism in SCRAM_MECHANISMS}

    def find_credential(self, mechanism: str, name: str) -> Credential | None:
        """Return the stored credential of a user, or None."""
        return self.users[mechanism].get(name)

    def load(self, new: Iterable[NewUser] = ()) -> None:
        """Read the newest copy of the file, and create the users of `new` that do not exist.

        Raises:
            CorruptFile, UnsupportedFormat, OSError: As `StateCopies.load` and `save`. A file that cannot be read is an
                error, because without its users the broker would refuse all clients.
        """
        users = self.copies.load() or self.copy()
        missing = [user for user in new if user.name not in users[user.mechanism]]
        for user in missing:
            users[user.mechanism][user.name] = user.credential
        if missing:
            self.copies.save(users)
        self.users = users

    def copy(self) -> Users:
        """Return a copy of `users` for changes."""
        return {mechanism: dict(users) for mechanism, users in self.users.items()}


def _encode(users: Users) -> dict[str, Any]:
    def encode_credential(credential: Credential) -> dict[str, Any]:
        keys = {key: base64.b64encode(getattr(credential, key)).decode() for key in _BYTES_FIELDS}
        return {"iterations": credential.iterations, **keys}

    return {
        "users": {
            mechanism: {name: encode_credential(credential) for name, credential in by_name.items()}
            for mechanism, by_name in users.items()
        }
    }


def _decode(state: Mapping[str, Any]) -> Users:
    def decode_credential(encoded: Mapping[str, Any]) -> Credential:
        keys = {key: base64.b64decode(encoded[key], validate=True) for key in _BYTES_FIELDS}
        return Credential(iterations=int(encoded["iterations"]), **keys)

    users = state["users"]
    return {
        mechanism: {name: decode_credential(encoded) for name, encoded in users.get(mechanism, {}).items()}
        for mechanism in SCRAM_MECHANISMS
    }
