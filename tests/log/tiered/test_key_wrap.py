"""Data keys that OpenSSL wrapped, and what is said when a key does not fit; secrets stay out of every text."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path

import pytest

from kafkalog_spark.errors import CorruptManifest, KafkalogError, KeyNotGiven, OptionError
from kafkalog_spark.log.tiered.key_ring import KeyRing
from kafkalog_spark.log.tiered.manifest import SegmentEncryption

KEYS = Path(__file__).parent / "keys"
DATA_KEY = (KEYS / "data.key").read_bytes()
ONE, TWO = ((KEYS / f"{name}.pem").read_text() for name in ("one", "two"))


def wrapped(file: str, key_id: str = "one") -> SegmentEncryption:
    return SegmentEncryption(key_id, (KEYS / file).read_bytes(), b"")


def test_key_wrapped_by_openssl_is_unwrapped() -> None:
    """PKCS#8 as text, and PKCS#1 with a larger modulus as a path."""
    ring = KeyRing({"one": ONE, "two": str(KEYS / "two.pem")})
    assert ring.unwrap_data_key(wrapped("data.key.one")) == DATA_KEY
    assert ring.unwrap_data_key(wrapped("data.key.two", "two")) == DATA_KEY


def test_key_is_chosen_by_its_id() -> None:
    ring = KeyRing({"old": TWO, "new": ONE})
    assert ring.unwrap_data_key(wrapped("data.key.one", "new")) == DATA_KEY
    assert ring.unwrap_data_key(wrapped("data.key.two", "old")) == DATA_KEY


def test_key_ring_survives_pickling() -> None:
    ring = pickle.loads(pickle.dumps(KeyRing({"one": ONE})))
    assert ring == KeyRing({"one": ONE})
    assert ring.unwrap_data_key(wrapped("data.key.one")) == DATA_KEY
    assert pickle.loads(pickle.dumps(ring)).unwrap_data_key(wrapped("data.key.one")) == DATA_KEY


def said(error: BaseException) -> str:
    """All that a log would show of an error."""
    return "".join(traceback.format_exception(error))


def secrets() -> list[str]:
    """Pieces of the private keys."""
    return [line for pem in (ONE, TWO) for line in pem.splitlines()[1:-1]]


def test_key_appears_in_no_text() -> None:
    ring = KeyRing({"one": ONE, "two": TWO})
    ring.unwrap_data_key(wrapped("data.key.one"))
    assert repr(ring) == str(ring) == "KeyRing(['one', 'two'])"
    assert "wrapped" not in repr(wrapped("data.key.one"))


@pytest.mark.parametrize(
    ("keys", "encryption", "error", "text"),
    [
        (
            {},
            wrapped("data.key.one"),
            KeyNotGiven,
            r"'one' .* option tiered.encryption.key.one to .* configured are none",
        ),
        ({"two": TWO}, wrapped("data.key.one"), KeyNotGiven, r"configured are \['two'\]"),
        ({"one": TWO}, wrapped("data.key.one"), CorruptManifest, "has 256 bytes, the private key 'one' expects 384"),
        (
            {"one": ONE},
            wrapped("data.key.sha256"),
            CorruptManifest,
            "cannot be unwrapped .*the private key of another pair",
        ),
        (
            {"one": ONE},
            wrapped("short.key.one"),
            CorruptManifest,
            r"the data key has 16 bytes, expected 32 \(AES-256\)",
        ),
        ({"one": ONE}, SegmentEncryption("one", bytes(256), b""), CorruptManifest, "cannot be unwrapped"),
        ({"one": ONE}, SegmentEncryption("one", b"\xff" * 256, b""), CorruptManifest, "cannot be unwrapped"),
        ({"one": ONE[:400]}, wrapped("data.key.one"), OptionError, "not a private RSA key in PEM"),
        ({"one": ONE.split("\n", 1)[1]}, wrapped("data.key.one"), OptionError, "neither a PEM nor a path"),
        (
            {"one": "/no/such/file.pem"},
            wrapped("data.key.one"),
            OptionError,
            "No such file.*every worker needs the file",
        ),
        ({"one": "a\0b"}, wrapped("data.key.one"), OptionError, "neither a PEM nor a path"),
        ({"one": str(KEYS)}, wrapped("data.key.one"), OptionError, "is not a regular file"),
        ({"one": str(KEYS / "data.key.one")}, wrapped("data.key.one"), OptionError, "is not a PEM file"),
        ({"one": str(KEYS / "README.md")}, wrapped("data.key.one"), OptionError, "not a private RSA key"),
        ({"one": (KEYS / "one.public.pem").read_text()}, wrapped("data.key.one"), OptionError, "a public key"),
        (
            {"one": (KEYS / "locked.pem").read_text()},
            wrapped("data.key.one"),
            OptionError,
            "not a private RSA key in PEM: it has a passphrase",
        ),
        ({"one": (KEYS / "elliptic.pem").read_text()}, wrapped("data.key.one"), OptionError, "not a private RSA key"),
    ],
)
def test_wrong_key_is_reported_without_a_secret(
    keys: dict[str, str], encryption: SegmentEncryption, error: type[KafkalogError], text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        KeyRing(keys).unwrap_data_key(encryption)
    shown = said(caught.value)
    assert not [secret for secret in secrets() if secret in shown]


def test_every_flipped_bit_of_a_wrapped_key_is_detected() -> None:
    ring = KeyRing({"one": ONE})
    good = (KEYS / "data.key.one").read_bytes()
    for at in range(0, len(good), 16):
        with pytest.raises(CorruptManifest):
            ring.unwrap_data_key(SegmentEncryption("one", good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :], b""))
