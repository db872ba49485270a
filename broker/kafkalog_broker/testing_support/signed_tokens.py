"""Signed tokens of OAUTHBEARER."""

from __future__ import annotations

import json
import os
import tempfile
import weakref
from collections.abc import Mapping
from typing import Any


class SignedTokens:
    """Signs tokens with a generated key.

    Attributes:
        jwks: Path of a file with the public key, which is deleted together with this object.
    """

    def __init__(self) -> None:
        from joserfc.jwk import ECKey

        self._key = ECKey.generate_key("P-256", auto_kid=True)
        descriptor, self.jwks = tempfile.mkstemp(suffix=".jwks.json")
        weakref.finalize(self, os.unlink, self.jwks)
        with open(descriptor, "w", encoding="ascii") as file:
            json.dump({"keys": [self._key.as_dict(private=False)]}, file)

    def signed(self, claims: Mapping[str, Any]) -> str:
        """Return a token with the claims that are not None."""
        from joserfc import jwt

        present = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode({"alg": "ES256", "kid": self._key.kid}, present, self._key)
