"""Private RSA keys that unwrap the data keys of encrypted segments.

Data keys are wrapped with RSA-OAEP, with SHA3-512 as the hash of OAEP and of MGF1, and without a label
(RsaEncryptionProvider of Aiven's plugin; BouncyCastle's `OAEPWithSHA3-512AndMGF1Padding`). `cryptography` does not
support that combination, so RSA is done by pycryptodome, with blinding and constant-time unpadding. Both packages come
with the extra `tiered`, and are imported at the first encrypted segment.

No repr and no error contains a secret. A pickled key ring, which Spark sends to its tasks, contains the keys: never
print it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkalog_spark.errors import CorruptFile, CorruptManifest, KafkalogError, KeyNotGiven, OptionError, install_hint
from kafkalog_spark.format.regular_file import read_whole

if TYPE_CHECKING:
    from Crypto.Cipher.PKCS1_OAEP import PKCS1OAEP_Cipher
    from Crypto.PublicKey.RSA import RsaKey

    from kafkalog_spark.log.tiered.manifest import SegmentEncryption  # manifests come with zstd

KEY_OPTION_PREFIX = "tiered.encryption.key."  # prefix of the names of key options; the ID of the key pair follows
DATA_KEY_SIZE = 32  # bytes: AES-256

_PEM_BEGIN = "-----BEGIN "
_MAX_PEM_SIZE = 1 << 20
"""Largest PEM in bytes. A key of 16,384 bits has 13 KB. A larger file is refused before it is read."""


class KeyRing:
    """Private RSA keys by the ID of their key pair. Picklable; the repr shows only the IDs.

    Args:
        keys: PEM of each key, or a path to its PEM file that Spark's workers can read, by ID.
        option: Name of the option of a key, for errors, with `{}` in the place of the ID.
        recorded_files: Paths of private keys in the records of a log directory, by ID. Errors show them; they are never
            opened.
    """

    def __init__(
        self,
        keys: Mapping[str, str],
        option: str = KEY_OPTION_PREFIX + "{}",
        recorded_files: Mapping[str, str] | None = None,
    ) -> None:
        self._keys = dict(keys)
        self._option = option
        self._recorded_files = dict(recorded_files or {})
        self._parsed: dict[str, RsaKey] = {}

    @property
    def ids(self) -> list[str]:
        """IDs of the key pairs, sorted."""
        return sorted(self._keys)

    def __repr__(self) -> str:
        return f"KeyRing({self.ids})"

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyRing, (self._keys, self._option, self._recorded_files)  # the receiver parses the keys again

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyRing) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(tuple(self.ids))

    @property
    def files(self) -> dict[str, str]:
        """Paths of the keys that were given as paths, by ID."""
        return {key_id: text for key_id, text in self._keys.items() if _PEM_BEGIN not in text}

    def with_recorded_files(self, files: Mapping[str, str]) -> KeyRing:
        """Return a ring with the same keys and more `recorded_files`."""
        return KeyRing(self._keys, self._option, {**self._recorded_files, **files})

    def check(self) -> None:
        """Read and parse all keys. Raises OptionError if one cannot be read or is not a private RSA key."""
        for key_id in self.ids:
            self._parsed_key(key_id)

    def wrap_data_key(self, key_id: str, data_key: bytes) -> bytes:
        """Return a segment's AES key, encrypted for the key pair.

        Raises:
            KeyNotGiven: If the ring lacks the key pair.
            OptionError: If the text or file of the key is not a private RSA key.
        """
        return _oaep_cipher(self._parsed_key(key_id).public_key()).encrypt(data_key)

    def unwrap_data_key(self, encryption: SegmentEncryption) -> bytes:
        """Return a segment's AES key of DATA_KEY_SIZE bytes.

        Raises:
            KeyNotGiven: If the ring lacks the key pair.
            OptionError: If the text or file of the key is not a private RSA key.
            CorruptManifest: If the private key does not match the wrapped key, or the manifest is damaged.
        """
        key = self._parsed_key(encryption.key_id)
        expected = key.size_in_bytes()
        if len(encryption.wrapped_key) != expected:
            raise CorruptManifest(
                f"encryption.dataKey has {len(encryption.wrapped_key)} bytes, the private key "
                f"{encryption.key_id!r} expects {expected}",
                hint=self._mismatch_hint(encryption.key_id),
            )
        try:
            data_key = _oaep_cipher(key).decrypt(encryption.wrapped_key)
        except ValueError:
            raise CorruptManifest(
                f"encryption.dataKey cannot be unwrapped with the private key {encryption.key_id!r}",
                hint=self._mismatch_hint(encryption.key_id),
            ) from None
        if len(data_key) != DATA_KEY_SIZE:
            raise CorruptManifest(f"the data key has {len(data_key)} bytes, expected {DATA_KEY_SIZE} (AES-256)")
        return data_key

    def _parsed_key(self, key_id: str) -> RsaKey:
        key = self._parsed.get(key_id)
        if key is None:
            option = self._option_name(key_id)
            key = self._parsed[key_id] = _parse_private_key(option, _read_pem(option, self._key_or_path(key_id)))
        return key

    def _key_or_path(self, key_id: str) -> str:
        key_or_path = self._keys.get(key_id)
        if key_or_path:
            return key_or_path
        # Spark's option names are case-insensitive, so the ID may have arrived in lower case.
        matches = [text for name, text in self._keys.items() if name.lower() == key_id.lower()]
        if len(matches) == 1:
            return matches[0]
        file = self._recorded_files.get(key_id)
        recorded = "" if file is None else f"; the broker of the log directory has it in {file}"
        raise KeyNotGiven(
            f"the segment is encrypted, and its private key {key_id[:60]!r} is not configured",
            hint=f"set the option {self._option_name(key_id)} to a path that Spark's workers can read, or to "
            f"the PEM itself; configured are {self.ids or 'none'}{recorded}",
        )

    def _option_name(self, key_id: str) -> str:
        return self._option.format(key_id[:60])

    def _mismatch_hint(self, key_id: str) -> str:
        return f"the manifest is damaged, or the option {self._option_name(key_id)} has the private key of another pair"


NO_KEYS = KeyRing({})


def _oaep_cipher(key: RsaKey) -> PKCS1OAEP_Cipher:
    from Crypto.Cipher import PKCS1_OAEP
    from Crypto.Hash import SHA3_512

    return PKCS1_OAEP.new(key, hashAlgo=SHA3_512)  # MGF1 takes the same hash


def _read_pem(option: str, key_or_path: str) -> str:
    """Return `key_or_path` itself if it is a PEM, or the content of the file at that path."""
    if _PEM_BEGIN in key_or_path:
        return key_or_path
    try:
        return read_whole(key_or_path, _MAX_PEM_SIZE).decode("ascii")
    except CorruptFile:
        raise OptionError(
            f"option {option}: {key_or_path[:200]!r} has more than {_MAX_PEM_SIZE} bytes and is not a PEM"
        ) from None
    except UnicodeDecodeError:
        raise OptionError(f"option {option}: {key_or_path[:200]!r} is not a PEM file") from None
    except (OSError, ValueError) as error:
        # The error must not contain `key_or_path`, which may be a key without its first line.
        reason = getattr(error, "strerror", None) or "not a valid file name"
        raise OptionError(
            f"option {option} is neither a PEM nor a path that can be read: {reason}",
            hint="on a cluster, every worker needs the file at this path",
        ) from None


def _parse_private_key(option: str, pem: str) -> RsaKey:
    try:
        from Crypto.PublicKey import RSA
    except ImportError:
        raise missing_package_error("pycryptodome") from None
    try:
        key: RsaKey = RSA.import_key(pem)
    except (ValueError, IndexError, TypeError):
        has_passphrase = "ENCRYPTED" in pem
        raise OptionError(
            f"option {option}: not a private RSA key in PEM" + (": it has a passphrase" if has_passphrase else ""),
            hint="use the plugin's private.key.file; openssl pkey -in FILE removes a passphrase",
        ) from None
    if not key.has_private():
        raise OptionError(f"option {option}: a public key, expected the private key of the pair")
    return key


def missing_package_error(package: str) -> KafkalogError:
    """Return the error for an encrypted segment if a package of the extra `tiered` is not installed."""
    return KafkalogError(
        f"reading an encrypted segment requires the package {package}",
        hint=f"{install_hint('tiered')}, also on Spark's workers",
    )
