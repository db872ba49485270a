"""Properties of remote storage (`rsm.config.*`) to where segments lie and how they are transformed. Parsed once.

The names are those of the plugin whose layout is written: `remote.log.storage.manager.class.name` says which. With
Aiven's `storage.backend.class` says what kind of place; without either it is Aiven's layout in a local folder.

| `storage.backend.class` ends in | place |
|---|---|
| `FileSystemStorage` (default) | `storage.root`, a local folder |
| `S3Storage` | `storage.s3.bucket.name`, with `storage.aws.*` or the keys that the machine has |
| `GcsStorage` | `storage.gcs.bucket.name` |
| `AzureBlobStorage` | `storage.azure.container.name` of `storage.azure.account.name` |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.format.meta_properties import format_properties
from kafkalog_spark.log.tiered.remote_names import LOCAL_TIERED_ROOT, Layout
from kafkalog_spark.log.tiered.tier_options import NO_KEYS, KeyRing
from kafkalog_spark.options import OptionSpec, boolean, choice, plain_text, positive, unknown_option
from kafkalog_spark.store.interface import normalised
from kafkalog_spark.store.storage_options import StorageOptions

CLASS_NAME = "remote.log.storage.manager.class.name"
PREFIX_NAME = "remote.log.storage.manager.impl.prefix"
DEFAULT_PREFIX = "rsm.config."

AIVEN_CLASS = "io.aiven.kafka.tieredstorage.RemoteStorageManager"
LOCAL_TIERED_CLASS = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
_BACKENDS = "io.aiven.kafka.tieredstorage.storage."
_FOLDER, _S3, _GCS, _AZURE = (
    f"{_BACKENDS}{name}"
    for name in ("filesystem.FileSystemStorage", "s3.S3Storage", "gcs.GcsStorage", "azure.AzureBlobStorage")
)

CHUNK_SIZE = 4 << 20  # bytes: what the plugin's documentation has
_MOST_OF_CHUNK_SIZE = (1 << 30) - 1
_CHUNK_CACHE = 64 << 20
"""Bytes: sixteen chunks, those of as many consumers that read different segments at once."""
_PREFETCH = 16 << 20
"""Bytes read ahead: at 20 to 100 ms a request, three chunks in flight make some hundred MB/s."""
_CALL_TIMEOUT_MS = 30_000
"""Milliseconds for which a request is tried again. A reader's thread is held for as long; a copy is tried again by
whoever copies."""
CUSTOM_FIELDS = ("REMOTE_SIZE", "OBJECT_PREFIX", "OBJECT_KEY")


def _list(name: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _custom_fields(name: str, text: str) -> frozenset[str]:
    return frozenset(choice(*CUSTOM_FIELDS)(name, part) for part in _list(name, text))


def _cache_bytes(name: str, text: str) -> int:
    """Bytes; -1 is no bound to the plugin, and its default here."""
    return _CHUNK_CACHE if text.strip() == "-1" else positive(MAX_INT64)(name, text)


_LAYOUT_SPECS = (
    OptionSpec("key.prefix", plain_text, ""),
    OptionSpec("chunk.size", positive(_MOST_OF_CHUNK_SIZE), str(CHUNK_SIZE)),
    OptionSpec("compression.enabled", boolean, "false"),
    OptionSpec("compression.heuristic.enabled", boolean, "false"),
    OptionSpec("encryption.enabled", boolean, "false"),
    OptionSpec("encryption.key.pair.id", plain_text),
    OptionSpec("encryption.key.pairs", _list, ""),
    OptionSpec("custom.metadata.fields.include", _custom_fields, ""),
    OptionSpec("fetch.chunk.cache.size", _cache_bytes, str(_CHUNK_CACHE)),
    OptionSpec("fetch.chunk.cache.prefetch.max.size", positive(MAX_INT64), str(_PREFETCH)),
)
_STORAGE_SPECS = {
    _FOLDER: (OptionSpec("storage.root", plain_text),),
    _S3: (
        OptionSpec("storage.s3.bucket.name", plain_text),
        OptionSpec("storage.s3.endpoint.url", plain_text),
        OptionSpec("storage.s3.region", plain_text),
        OptionSpec("storage.s3.path.style.access.enabled", boolean),
        OptionSpec("storage.s3.api.call.timeout", positive(MAX_INT64), str(_CALL_TIMEOUT_MS)),
        OptionSpec("storage.s3.api.call.attempt.timeout", positive(MAX_INT64)),
        OptionSpec("storage.aws.access.key.id", plain_text),
        OptionSpec("storage.aws.secret.access.key", plain_text),
    ),
    _GCS: (
        OptionSpec("storage.gcs.bucket.name", plain_text),
        OptionSpec("storage.gcs.endpoint.url", plain_text),
        OptionSpec("storage.gcs.credentials.json", plain_text),
        OptionSpec("storage.gcs.credentials.path", plain_text),
        OptionSpec("storage.gcs.credentials.default", boolean),
    ),
    _AZURE: (
        OptionSpec("storage.azure.container.name", plain_text),
        OptionSpec("storage.azure.account.name", plain_text),
        OptionSpec("storage.azure.account.key", plain_text),
        OptionSpec("storage.azure.sas.token", plain_text),
        OptionSpec("storage.azure.connection.string", plain_text),
        OptionSpec("storage.azure.endpoint.url", plain_text),
    ),
}
_SECRET = frozenset({
    "storage.aws.access.key.id", "storage.aws.secret.access.key", "storage.gcs.credentials.json",
    "storage.azure.account.key", "storage.azure.sas.token", "storage.azure.connection.string",
})  # fmt: skip
_WITHOUT_MEANING = (
    "metrics.", "fetch.", "upload.", "segment.manifest.cache.", "segment.indexes.cache.", "key.prefix.mask",
    "storage.overwrite.enabled", "storage.aws.checksum.check.enabled", "storage.s3.multipart.upload.part.size",
    "storage.gcs.resumable.upload.chunk.size", "storage.azure.upload.block.size",
)  # fmt: skip
"""What Aiven's plugin has beyond these: caches and pools of its JVM, how requests are cut."""
_PAGE = "docs/tiered_storage.md lists"
_NO_STORAGE = StorageOptions()
_OF_LOCAL_TIERED = ("delete.on.close", "delete.enable", "transferer.class", "broker.id", "storage.wait.interval.ms")


@dataclass(frozen=True)
class RemoteStorageOptions:
    """Where segments lie (layout AIVEN or LOCAL_TIERED; root: an absolute path or a URL), and how they are written.
    key_id: the key pair for new segments, None without encryption. chunk_size, chunk_cache_bytes, prefetch_bytes:
    bytes. recorded: the properties that may be written down, by full name; without secrets."""

    layout: Layout
    root: str
    key_prefix: str = ""
    storage: StorageOptions = _NO_STORAGE
    chunk_size: int = CHUNK_SIZE
    compress: bool = False
    compress_by_first_batch: bool = False
    key_id: str | None = None
    keys: KeyRing = NO_KEYS
    custom_fields: frozenset[str] = frozenset()
    chunk_cache_bytes: int = _CHUNK_CACHE
    prefetch_bytes: int = _PREFETCH
    recorded: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, properties: Mapping[str, str], default_root: str | None = None) -> RemoteStorageOptions:
        """Options by a broker's properties, in Kafka's full names; those not of remote storage are left alone.
        default_root: the folder where none is named. Raises OptionError, which names the property; a file with a
        private key is read when a segment needs it."""
        prefix = properties.get(PREFIX_NAME, DEFAULT_PREFIX)
        given = {name.removeprefix(prefix): text for name, text in properties.items() if name.startswith(prefix)}
        manager = properties.get(CLASS_NAME, AIVEN_CLASS)
        if manager == LOCAL_TIERED_CLASS:
            _refuse_unknown(given, ("dir", *_OF_LOCAL_TIERED), (), prefix)
            root = os.path.join(_folder(given.get("dir", default_root), prefix + "dir"), LOCAL_TIERED_ROOT)
            made = cls(Layout.LOCAL_TIERED, root)
        elif manager == AIVEN_CLASS:
            made = _aiven(given, prefix, default_root)
        else:
            raise OptionError(
                f"{CLASS_NAME} is {manager[:100]}, which runs in a JVM only",
                hint=f"{AIVEN_CLASS} and {LOCAL_TIERED_CLASS} are written here",
            )
        recorded = {name: text for name, text in properties.items() if name in (CLASS_NAME, PREFIX_NAME)}
        recorded |= {prefix + name: text for name, text in given.items() if name not in _SECRET}
        if made.layout is Layout.LOCAL_TIERED:
            recorded[prefix + "dir"] = os.path.dirname(made.root)
        elif made.is_local:
            recorded[prefix + "storage.root"] = made.root
        return cls(**{**made.__dict__, "recorded": tuple(sorted(recorded.items()))})

    def recorded_file(self, date: datetime) -> bytes:
        """Content of REMOTE_STORAGE_FILE: the properties that `of` makes the same of, but for secrets."""
        return format_properties(dict(self.recorded), date)

    @property
    def is_local(self) -> bool:
        """True if the root is a folder."""
        return "://" not in self.root


def _aiven(given: Mapping[str, str], prefix: str, default_root: str | None) -> RemoteStorageOptions:
    backend = given.get("storage.backend.class", _FOLDER)
    if backend not in _STORAGE_SPECS:
        raise OptionError(
            f"{prefix}storage.backend.class is {backend[:100]}", hint=f"known are {', '.join(_STORAGE_SPECS)}"
        )
    specs = [*_LAYOUT_SPECS, *_STORAGE_SPECS[backend]]
    names = ["storage.backend.class", *(spec.name for spec in specs)]
    _refuse_unknown(given, names, ("encryption.key.pairs.", *_WITHOUT_MEANING), prefix)
    texts = {(prefix + name).lower(): text for name, text in given.items()}
    named = {spec.name: replace(spec, name=prefix + spec.name) for spec in specs}
    value = {name: spec.value(texts.get(spec.name.lower())) for name, spec in named.items()}
    root, storage = _PLACES[backend](value, prefix, default_root)
    key_prefix = value["key.prefix"]
    parts = key_prefix.split("/")
    if any(part in (".", "..") for part in parts) or "" in parts[:-1]:
        raise OptionError(
            f"{prefix}key.prefix is {key_prefix[:100]!r}", hint="names between slashes, none at its start"
        )
    keys, key_id = _key_pairs(given, value, prefix)
    return RemoteStorageOptions(
        Layout.AIVEN, root, key_prefix, storage, value["chunk.size"], value["compression.enabled"],
        value["compression.heuristic.enabled"], key_id, keys, value["custom.metadata.fields.include"],
        value["fetch.chunk.cache.size"], value["fetch.chunk.cache.prefetch.max.size"],
    )  # fmt: skip


def _refuse_unknown(
    given: Mapping[str, str], names: tuple[str, ...] | list[str], beginnings: tuple[str, ...], prefix: str
) -> None:
    for name in given:
        if name not in names and not name.startswith(beginnings):
            raise unknown_option(prefix + name, [prefix + known for known in names], {}, _PAGE)


def _key_pairs(given: Mapping[str, str], value: Mapping[str, Any], prefix: str) -> tuple[KeyRing, str | None]:
    """The private keys, and the id of the pair for new segments. The public key is the private one's."""
    name = "encryption.key.pairs.{}.private.key.file"
    ids = value["encryption.key.pairs"]
    files = {key_id: given.get(name.format(key_id)) for key_id in ids}
    missing = [key_id for key_id, file in files.items() if not file]
    if missing:
        raise OptionError(
            f"{prefix}encryption.key.pairs names {missing[0]!r}, without {prefix}{name.format(missing[0])}"
        )
    keys = KeyRing({key_id: file for key_id, file in files.items() if file}, prefix + name)
    if not value["encryption.enabled"]:
        return keys, None
    key_id = value["encryption.key.pair.id"]
    if key_id not in files:
        raise OptionError(
            f"{prefix}encryption.key.pair.id is {key_id!r}, which is none of {prefix}encryption.key.pairs: "
            f"{', '.join(ids) or 'none'}"
        )
    return keys, key_id


_Place = tuple[str, StorageOptions]


def _folder(path: str | None, name: str) -> str:
    if not path:
        raise OptionError(f"{name} is missing", hint="the folder that segments are copied to")
    return normalised(path)


def _folder_place(value: Mapping[str, Any], prefix: str, default_root: str | None) -> _Place:
    return _folder(value["storage.root"] or default_root, prefix + "storage.root"), StorageOptions()


def _required(value: Mapping[str, Any], name: str, prefix: str) -> str:
    text = value[name]
    if not text:
        raise OptionError(f"{prefix}{name} is missing")
    return str(text)


def _s3_place(value: Mapping[str, Any], prefix: str, _: str | None) -> _Place:
    path_style, attempt = value["storage.s3.path.style.access.enabled"], value["storage.s3.api.call.attempt.timeout"]
    return f"s3://{_required(value, 'storage.s3.bucket.name', prefix)}", _storage({
        "fs.s3a.access.key": value["storage.aws.access.key.id"],
        "fs.s3a.secret.key": value["storage.aws.secret.access.key"],
        "fs.s3a.endpoint": value["storage.s3.endpoint.url"],
        "fs.s3a.endpoint.region": value["storage.s3.region"],
        "fs.s3a.path.style.access": None if path_style is None else str(path_style),
        "storage.retry_timeout": str(value["storage.s3.api.call.timeout"] / 1000),
        "storage.timeout": None if attempt is None else f"{attempt}ms",
    })  # fmt: skip


def _gcs_place(value: Mapping[str, Any], prefix: str, _: str | None) -> _Place:
    return f"gs://{_required(value, 'storage.gcs.bucket.name', prefix)}", _storage({
        "storage.service_account_key": value["storage.gcs.credentials.json"],
        "storage.application_credentials": value["storage.gcs.credentials.path"],
        "storage.base_url": value["storage.gcs.endpoint.url"],
        "storage.retry_timeout": str(_CALL_TIMEOUT_MS / 1000),
    })  # fmt: skip


def _azure_place(value: Mapping[str, Any], prefix: str, _: str | None) -> _Place:
    connection = dict(
        part.partition("=")[::2] for part in (value["storage.azure.connection.string"] or "").split(";") if part
    )
    return f"az://{_required(value, 'storage.azure.container.name', prefix)}", _storage({
        "storage.account_name": value["storage.azure.account.name"] or connection.get("AccountName"),
        "storage.account_key": value["storage.azure.account.key"] or connection.get("AccountKey"),
        "storage.sas_key": value["storage.azure.sas.token"] or connection.get("SharedAccessSignature"),
        "storage.endpoint": value["storage.azure.endpoint.url"] or connection.get("BlobEndpoint"),
        "storage.retry_timeout": str(_CALL_TIMEOUT_MS / 1000),
    })  # fmt: skip


_PLACES: dict[str, Callable[[Mapping[str, Any], str, str | None], _Place]] = {
    _FOLDER: _folder_place,
    _S3: _s3_place,
    _GCS: _gcs_place,
    _AZURE: _azure_place,
}


def _storage(texts: Mapping[str, str | None]) -> StorageOptions:
    return StorageOptions.of({name: text for name, text in texts.items() if text})
