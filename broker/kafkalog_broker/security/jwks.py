"""JSON Web Key Sets (RFC 7517): download from a URL, and the public keys in a set."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from kafkalog_spark.http_client import HttpClient

if TYPE_CHECKING:  # importing joserfc takes a tenth of a second, and only signed tokens need it
    from joserfc.jwk import ECKey, RSAKey

    SigningKey = RSAKey | ECKey

MAX_BYTES = 1 << 20  # ten times the size of a set of about 100 keys

KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC"}
"""First letters of a signature algorithm -> type of its keys."""

_MAX_LOGGED = 5  # largest number of unreadable keys that the log names

_log = logging.getLogger(__name__)


def read_jwks(url: str, clock: Callable[[], float]) -> bytes:
    """Read a file, http or https URL.

    HttpClient follows no redirect to another server, because that server would decide whose tokens are accepted.

    Raises:
        OSError: If the file or server cannot be read, or does not respond in time.
        ValueError: If the content is too large or the server responds with an error.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        with Path(unquote(parts.path)).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"the file has more than {MAX_BYTES} bytes")
        return data
    response = HttpClient(MAX_BYTES, {"Accept": "application/json"}, clock=clock).send(url)
    if response.status != 200:
        raise ValueError(f"the JWKS server responded with {response.status} {response.reason}")
    return response.content


def parse_jwks(data: bytes) -> tuple[SigningKey, ...]:
    """Return the public keys for signatures. Unreadable ones, such as keys of unknown curves, are logged and left out.

    Raises:
        ValueError: If the data is not a key set or has no such key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry

    unreadable = (KeyError, TypeError, AttributeError, ValueError, JoseError, UnsupportedAlgorithm)
    try:
        entries = list(json.loads(data)["keys"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a JSON Web Key Set: {type(error).__name__}") from None
    keys, left_out = [], []
    for number, entry in enumerate(entries):
        try:
            if entry.get("kty") in KEY_TYPES.values() and entry.get("use", "sig") == "sig":
                keys.append(cast("SigningKey", JWKRegistry.import_key(entry)))
        except unreadable as error:
            key_id = entry.get("kid") if isinstance(entry, dict) else None
            left_out.append(f"{number} ({key_id!r:.100}: {type(error).__name__})")
    if left_out:
        shown = ", ".join(left_out[:_MAX_LOGGED])
        _log.warning("%d keys of a JSON Web Key Set cannot be read and are left out: %s", len(left_out), shown)
    if not keys:
        raise ValueError("the key set has no public key for signatures (RSA or EC) that can be read")
    return tuple(keys)
