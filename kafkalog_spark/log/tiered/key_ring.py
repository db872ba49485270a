"""Private RSA keys that unwrap the data keys of encrypted segments.

RSA-OAEP with SHA3-512, MGF1 with SHA3-512 too, no label (RsaEncryptionProvider of Aiven's plugin; BouncyCastle's
`OAEPWithSHA3-512AndMGF1Padding`). `cryptography` refuses that combination; pycryptodome has it, with blinded RSA and an
unpadding in constant time. Both come with the extra `tiered`, and are imported at the first encrypted segment.

Secrets are in no repr and no error. Pickles of a key ring, which go to Spark's tasks, hold the keys: never print them.
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

KEY_OPTION = "tiered.encryption.key."  # prefix of the options with a key; the id of the key pair follows
DATA_KEY_SIZE = 32  # bytes: AES-256

_PEM_BEGIN = "-----BEGIN "
_MAX_PEM = 1 << 20
"""Largest PEM in bytes; a key of 16,384 bits takes 13 KB. A path to a larger file is refused before it is read."""


class KeyRing:
    """Private RSA keys by id. Picklable; the repr shows ids only.

    Args:
        keys: By id, the PEM itself, or a path to it that Spark's workers can read.
        option: Name of the option of a key for errors, with `{}` for its id.
        recorded_files: By id, paths that a log directory names. Errors show them; they are never opened.
    """

    def __init__(
        self,
        keys: Mapping[str, str],
        option: str = KEY_OPTION + "{}",
        recorded_files: Mapping[str, str] | None = None,
    ) -> None:
        self._given = dict(keys)
        self._option = option
        self._recorded_files = dict(recorded_files or {})
        self._parsed: dict[str, RsaKey] = {}

    @property
    def ids(self) -> list[str]:
        return sorted(self._given)

    def __repr__(self) -> str:
        return f"KeyRing({self.ids})"

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyRing, (self._given, self._option, self._recorded_files)  # the receiver parses the keys again

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyRing) and self._given == other._given

    def __hash__(self) -> int:
        return hash(tuple(self.ids))

    @property
    def files(self) -> dict[str, str]:
        """Return the paths by id of the keys that were given as paths."""
        return {key_id: text for key_id, text in self._given.items() if _PEM_BEGIN not in text}

    def with_recorded_files(self, files: Mapping[str, str]) -> KeyRing:
        """Return a ring of the same keys, with more paths for errors to show."""
        return KeyRing(self._given, self._option, {**self._recorded_files, **files})

    def check(self) -> None:
        """Read all keys. Raises OptionError if one cannot be read, or is no private RSA key."""
        for key_id in self.ids:
            self._key(key_id)

    def wrapped(self, key_id: str, data_key: bytes) -> bytes:
        """Return a segment's AES key, encrypted for the pair. Raises KeyNotGiven, OptionError as `data_key`."""
        return _oaep(self._key(key_id).public_key()).encrypt(data_key)

    def data_key(self, encryption: SegmentEncryption) -> bytes:
        """Return a segment's AES key of DATA_KEY_SIZE bytes.

        Raises:
            KeyNotGiven: If the ring lacks the key pair.
            OptionError: If the given text or file is no private RSA key.
            CorruptManifest: If the key does not fit the manifest, or the manifest is damaged.
        """
        key = self._key(encryption.key_id)
        expected = key.size_in_bytes()
        if len(encryption.wrapped_key) != expected:
            raise CorruptManifest(
                f"encryption.dataKey has {len(encryption.wrapped_key)} bytes, the private key "
                f"{encryption.key_id!r} fits {expected}",
                hint=self._other_key(encryption.key_id),
            )
        try:
            data_key = _oaep(key).decrypt(encryption.wrapped_key)
        except ValueError:
            raise CorruptManifest(
                f"encryption.dataKey cannot be unwrapped with the private key {encryption.key_id!r}",
                hint=self._other_key(encryption.key_id),
            ) from None
        if len(data_key) != DATA_KEY_SIZE:
            raise CorruptManifest(f"the data key has {len(data_key)} bytes, AES-256 takes {DATA_KEY_SIZE}")
        return data_key

    def _key(self, key_id: str) -> RsaKey:
        key = self._parsed.get(key_id)
        if key is None:
            given = self._given.get(key_id)
            if not given:  # Spark's option names are case-insensitive
                others = [text for name, text in self._given.items() if name.lower() == key_id.lower()]
                given = others[0] if len(others) == 1 else None
            if given is None:
                file = self._recorded_files.get(key_id)
                known = "" if file is None else f"; the broker of the log directory has it in {file}"
                raise KeyNotGiven(
                    f"the segment is encrypted, and the private key {key_id[:60]!r} that opens it is not given",
                    hint=f"give it with the option {self._named(key_id)}, as a path that Spark's workers can read or "
                    f"as the PEM itself; given are {self.ids or 'none'}{known}",
                )
            option = self._named(key_id)
            key = self._parsed[key_id] = _private_key(option, _pem(option, given))
        return key

    def _named(self, key_id: str) -> str:
        return self._option.format(key_id[:60])

    def _other_key(self, key_id: str) -> str:
        return f"the manifest is damaged, or the option {self._named(key_id)} gives the key of another pair"


def _oaep(key: RsaKey) -> PKCS1OAEP_Cipher:
    from Crypto.Cipher import PKCS1_OAEP
    from Crypto.Hash import SHA3_512

    return PKCS1_OAEP.new(key, hashAlgo=SHA3_512)  # MGF1 takes the same hash


def _pem(option: str, given: str) -> str:
    """Return the PEM: the given text, or the content of the file that it names."""
    if _PEM_BEGIN in given:
        return given
    try:
        return read_whole(given, _MAX_PEM).decode("ascii")
    except CorruptFile:
        raise OptionError(f"option {option}: {given[:200]!r} has more than {_MAX_PEM} bytes and is no PEM") from None
    except UnicodeDecodeError:
        raise OptionError(f"option {option}: {given[:200]!r} is no PEM file") from None
    except (OSError, ValueError) as error:
        # The given text is not shown: it may be a key without its first line.
        reason = getattr(error, "strerror", None) or "no file has such a name"
        raise OptionError(
            f"option {option} is neither a PEM nor a path that can be read: {reason}",
            hint="on a cluster the file must be there on every worker",
        ) from None


def _private_key(option: str, pem: str) -> RsaKey:
    try:
        from Crypto.PublicKey import RSA
    except ImportError:
        raise needs_extra("pycryptodome") from None
    try:
        key: RsaKey = RSA.import_key(pem)
    except (ValueError, IndexError, TypeError):
        locked = "ENCRYPTED" in pem
        raise OptionError(
            f"option {option}: not a private RSA key in PEM" + (", but one with a passphrase" if locked else ""),
            hint="the plugin's own private.key.file is one; openssl pkey -in FILE writes one without a passphrase",
        ) from None
    if not key.has_private():
        raise OptionError(f"option {option}: a public key; the private key of the pair is needed")
    return key


def needs_extra(package: str) -> KafkalogError:
    """Return the error for an encrypted segment if the extra `tiered` is not installed."""
    return KafkalogError(
        f"the segment is encrypted, which takes the package {package}",
        hint=f"{install_hint('tiered')}, also on Spark's workers",
    )


NO_KEYS = KeyRing({})
