"""Properties of remote storage (`rsm.config.*`): the location of segments, their compression and their encryption.

`remote.log.storage.manager.class.name` names the plugin whose properties and layout are used; the default is Aiven's
plugin with a local folder. The property `storage.backend.class` of Aiven's plugin names the kind of location.

| `storage.backend.class` ends in | location |
|---|---|
| `FileSystemStorage` (default) | `storage.root`, a local folder |
| `S3Storage` | `storage.s3.bucket.name`; credentials from `storage.aws.*` or the environment |
| `GcsStorage` | `storage.gcs.bucket.name` |
| `AzureBlobStorage` | `storage.azure.container.name` of `storage.azure.account.name` |
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.format.meta_properties import format_properties
from kafkalog_spark.log.remote.bucket_backends import BUCKET_BACKENDS, BucketBackend, bucket_storage_options
from kafkalog_spark.log.tiered.key_ring import NO_KEYS, KeyRing
from kafkalog_spark.log.tiered.object_keys import LOCAL_TIERED_ROOT, Layout
from kafkalog_spark.options import (
    OptionSpec,
    boolean,
    choice,
    option,
    parse_fields,
    plain_text,
    positive,
    specs_of,
    unknown_option,
)
from kafkalog_spark.store.paths import is_local, normalised, parse_path
from kafkalog_spark.store.storage_options import StorageOptions

CLASS_NAME = "remote.log.storage.manager.class.name"
PREFIX_NAME = "remote.log.storage.manager.impl.prefix"
DEFAULT_PREFIX = "rsm.config."

AIVEN_CLASS = "io.aiven.kafka.tieredstorage.RemoteStorageManager"
LOCAL_TIERED_CLASS = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
_FOLDER_BACKEND = "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage"

CHUNK_SIZE = 4 << 20  # default chunk.size in bytes, from the plugin's documentation
_MAX_CHUNK_SIZE = (1 << 30) - 1
_CHUNK_CACHE_BYTES = 16 << 20
"""Default size of the chunk cache in bytes: four chunks, of which two are fetched at a time."""
_PREFETCH_BYTES = 8 << 20
"""Default number of bytes read ahead: fetching two chunks at a time hides the latency of an object store."""
CUSTOM_FIELDS = ("REMOTE_SIZE", "OBJECT_PREFIX", "OBJECT_KEY")
"""Values of `custom.metadata.fields.include`."""


def _parse_list(name: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _parse_custom_fields(name: str, text: str) -> frozenset[str]:
    return frozenset(choice(*CUSTOM_FIELDS)(name, part) for part in _parse_list(name, text))


def _parse_cache_bytes(name: str, text: str) -> int:
    """Parse a size in bytes. -1, which means no limit in the plugin, selects the default here."""
    return _CHUNK_CACHE_BYTES if text.strip() == "-1" else positive(MAX_INT64)(name, text)


_KEY_FILE_PROPERTY = "encryption.key.pairs.{}.private.key.file"
_RECORDED_NAMES = re.compile(
    r"dir|key\.prefix|encryption\.key\.pairs|storage\.(backend\.class|root|s3\.bucket\.name|gcs\.bucket\.name|"
    r"azure\.container\.name|azure\.account\.name|(s3|gcs|azure)\.endpoint\.url|s3\.region|"
    r"s3\.path\.style\.access\.enabled)|" + re.escape(_KEY_FILE_PROPERTY).replace(r"\{\}", ".+")
)
"""Names of the properties that are recorded in a log directory: those of the location of segments. All others may
contain a secret, or are needed only for writing."""
_IGNORED_PREFIXES = (
    "metrics.", "fetch.", "upload.", "segment.manifest.cache.", "segment.indexes.cache.", "key.prefix.mask",
    "storage.overwrite.enabled", "storage.aws.checksum.check.enabled", "storage.s3.multipart.upload.part.size",
    "storage.gcs.resumable.upload.chunk.size", "storage.azure.upload.block.size",
)  # fmt: skip
"""Prefixes of the properties of Aiven's plugin that are ignored: caches and pools of its JVM, sizes of requests."""
_ENCRYPTION_SPECS = (
    OptionSpec("encryption.enabled", boolean, "false"),
    OptionSpec("encryption.key.pair.id", plain_text),
    OptionSpec("encryption.key.pairs", _parse_list, ""),
)
_DOCUMENTATION = "docs/tiered_storage.md lists"
_NO_STORAGE = StorageOptions()
_IGNORED_BY_LOCAL_TIERED = (
    "delete.on.close",
    "delete.enable",
    "transferer.class",
    "broker.id",
    "storage.wait.interval.ms",
)


@dataclass(frozen=True)
class RemoteStorageOptions:
    """Location of remote segments, and settings with which segments are read and written.

    Attributes:
        layout: AIVEN or LOCAL_TIERED.
        root: Absolute path or URL that all object keys are appended to.
        key_id: ID of the key pair for new segments; None without encryption.
        recorded: Names and values of the properties that are recorded in a log directory, sorted by full name.
        store_properties: Full names of the given bucket properties, for errors.
    """

    layout: Layout
    root: str
    key_prefix: str = option("key.prefix", plain_text, "")
    chunk_size: int = option("chunk.size", positive(_MAX_CHUNK_SIZE), str(CHUNK_SIZE))
    compress: bool = option("compression.enabled", boolean, "false")
    compress_by_first_batch: bool = option("compression.heuristic.enabled", boolean, "false")
    custom_fields: frozenset[str] = option("custom.metadata.fields.include", _parse_custom_fields, "")
    chunk_cache_bytes: int = option("fetch.chunk.cache.size", _parse_cache_bytes, str(_CHUNK_CACHE_BYTES))
    prefetch_bytes: int = option("fetch.chunk.cache.prefetch.max.size", positive(MAX_INT64), str(_PREFETCH_BYTES))
    storage: StorageOptions = _NO_STORAGE
    key_id: str | None = None
    keys: KeyRing = NO_KEYS
    recorded: tuple[tuple[str, str], ...] = ()
    store_properties: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The configured folder or bucket URL: the parent of `root` with LocalTieredStorage, `root` otherwise."""
        return os.path.dirname(self.root) if self.layout is Layout.LOCAL_TIERED else self.root

    @property
    def location(self) -> tuple[Layout, str, str]:
        """Identity of the location of segments: options with equal locations find the same objects."""
        return self.layout, self.root, self.key_prefix

    def check_account(self) -> None:
        """Raise OptionError if the root is an Azure container and no account is configured."""
        accounts = ("storage.account_name", "storage.use_emulator")
        is_azure = parse_path(self.root).scheme == "az"
        if is_azure and not (
            any(name in accounts for name, _ in self.storage.values) or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
        ):
            raise OptionError(
                f"no property names the account of {self.root}",
                hint="give storage.azure.account.name, or storage.azure.connection.string with AccountName",
            )

    @classmethod
    def of(cls, properties: Mapping[str, str], default_root: str | None = None) -> RemoteStorageOptions:
        """Parse the properties of remote storage among those of a broker.

        Files with private keys are read only when a segment needs them.

        Args:
            properties: Properties of a broker by Kafka's full names.
            default_root: Folder to use if the properties name none.

        Raises:
            OptionError: With the name of the property.
        """
        prefix = properties.get(PREFIX_NAME, DEFAULT_PREFIX)
        given = {name.removeprefix(prefix): text for name, text in properties.items() if name.startswith(prefix)}
        manager = properties.get(CLASS_NAME, AIVEN_CLASS)
        if manager == LOCAL_TIERED_CLASS:
            _refuse_unknown(given, ("dir", *_IGNORED_BY_LOCAL_TIERED), (), prefix)
            root = os.path.join(_require_folder(given.get("dir", default_root), prefix + "dir"), LOCAL_TIERED_ROOT)
            options = cls(Layout.LOCAL_TIERED, root, **parse_fields(cls, {}))
        elif manager == AIVEN_CLASS:
            options = _parse_aiven(given, prefix, default_root)
        else:
            raise OptionError(
                f"{CLASS_NAME} is {manager[:100]}, which runs in a JVM only",
                hint=f"supported are {AIVEN_CLASS} and {LOCAL_TIERED_CLASS}",
            )
        recorded = _select_recorded(properties, prefix)
        if options.layout is Layout.LOCAL_TIERED:
            recorded[prefix + "dir"] = options.folder
        elif is_local(options.root):
            recorded[prefix + "storage.root"] = options.root
        return replace(options, recorded=tuple(sorted(recorded.items())))

    @classmethod
    def of_recorded(cls, properties: Mapping[str, str]) -> RemoteStorageOptions:
        """Parse the properties in REMOTE_STORAGE_FILE, ignoring those that `recorded_file` does not write.

        Raises OptionError, like `of`.
        """
        return cls.of(_select_recorded(properties, properties.get(PREFIX_NAME, DEFAULT_PREFIX)))

    def recorded_file(self, date: datetime) -> bytes:
        """Return the content of REMOTE_STORAGE_FILE: the location of segments, without secrets."""
        return format_properties(dict(self.recorded), date)


def _refuse_unknown(
    given: Mapping[str, str], names: tuple[str, ...] | list[str], ignored_prefixes: tuple[str, ...], prefix: str
) -> None:
    """Raise OptionError for a property that is not in `names` and begins with none of `ignored_prefixes`."""
    for name in given:
        if name not in names and not name.startswith(ignored_prefixes):
            raise unknown_option(prefix + name, [prefix + known for known in names], {}, _DOCUMENTATION)


def _require_folder(path: str | None, name: str) -> str:
    if not path:
        raise OptionError(f"{name} is missing", hint="give the folder to which segments are copied")
    return normalised(path)


def _parse_aiven(given: Mapping[str, str], prefix: str, default_root: str | None) -> RemoteStorageOptions:
    """Parse the properties of Aiven's plugin, by name without prefix."""
    backend_class = given.get("storage.backend.class", _FOLDER_BACKEND)
    if backend_class != _FOLDER_BACKEND and backend_class not in BUCKET_BACKENDS:
        supported = ", ".join((_FOLDER_BACKEND, *BUCKET_BACKENDS))
        raise OptionError(f"{prefix}storage.backend.class is {backend_class[:100]}", hint=f"supported are {supported}")
    backend = BUCKET_BACKENDS.get(backend_class, BucketBackend("", "storage.root", {}))
    specs = (*specs_of(RemoteStorageOptions), *_ENCRYPTION_SPECS)
    names = [
        "storage.backend.class", *(spec.name for spec in specs), backend.bucket_property, *backend.properties,
    ]  # fmt: skip
    _refuse_unknown(given, names, ("encryption.key.pairs.", *_IGNORED_PREFIXES), prefix)
    if backend_class == _FOLDER_BACKEND:
        root = _require_folder(given.get("storage.root", default_root), prefix + "storage.root")
        storage = _NO_STORAGE
    else:
        bucket = given.get(backend.bucket_property)
        if not bucket:
            raise OptionError(f"{prefix}{backend.bucket_property} is missing")
        root, storage = f"{backend.scheme}://{bucket}", bucket_storage_options(backend, given, prefix)
    values = parse_fields(RemoteStorageOptions, given, prefix)
    parts = values["key_prefix"].split("/")
    if any(part in (".", "..") for part in parts) or "" in parts[:-1]:
        raise OptionError(
            f"{prefix}key.prefix is {values['key_prefix'][:100]!r}", hint="names between slashes, none at its start"
        )
    keys, key_id = _parse_key_pairs(given, prefix)
    used = tuple(prefix + name for name in given if name in backend.properties)
    return RemoteStorageOptions(
        Layout.AIVEN, root, **values, storage=storage, key_id=key_id, keys=keys, store_properties=used
    )


def _parse_key_pairs(given: Mapping[str, str], prefix: str) -> tuple[KeyRing, str | None]:
    """Return the private keys, and the ID of the key pair for new segments or None.

    Public keys are derived from the private keys, so properties with files of public keys are ignored.
    """
    is_enabled, key_id, ids = (spec.value(given.get(spec.name), prefix) for spec in _ENCRYPTION_SPECS)
    name = _KEY_FILE_PROPERTY
    files = {pair: given.get(name.format(pair)) for pair in ids}
    missing = [pair for pair, file in files.items() if not file]
    if missing:
        raise OptionError(
            f"{prefix}encryption.key.pairs names {missing[0]!r}, without {prefix}{name.format(missing[0])}"
        )
    for pair, file in files.items():
        if file and ("\n" in file or "-----" in file):
            raise OptionError(
                f"{prefix}{name.format(pair)} contains a key",
                hint="write the key to a file, and give the path of the file",
            )
    keys = KeyRing({pair: file for pair, file in files.items() if file}, prefix + name)
    if not is_enabled:
        return keys, None
    if key_id not in files:
        raise OptionError(
            f"{prefix}encryption.key.pair.id is {key_id!r}, which is not in {prefix}encryption.key.pairs: "
            f"{', '.join(ids) or 'none'}"
        )
    return keys, key_id


def _select_recorded(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return those properties of a broker that are recorded in its log directories, by full name."""
    return {
        name: text
        for name, text in properties.items()
        if name in (CLASS_NAME, PREFIX_NAME)
        or (name.startswith(prefix) and _RECORDED_NAMES.fullmatch(name.removeprefix(prefix)))
    }
