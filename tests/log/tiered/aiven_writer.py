"""Writes segments as Aiven's tiered-storage-for-apache-kafka does: log, indexes, manifest, in four modes.

    write_tree(root, segments, target, AivenMode.ZSTD_ENCRYPTED, chunk_size=1000)

makes, of the segments of a LocalTieredStorage directory, what the plugin with its FileSystemStorage would have put
below `target`. `write_segment` and `segment_objects` are the parts of it. Encryption keys: tests/log/tiered/keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path

import numpy as np
import zstandard
from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kafkalog_spark.log.tiered.chunk_codec import ChunkCodec
from kafkalog_spark.log.tiered.chunks import ChunkIndex
from kafkalog_spark.log.tiered.manifest import (
    INDEX_FIELDS,
    IndexRange,
    SegmentEncryption,
    SegmentManifest,
    format_manifest,
)
from kafkalog_spark.log.tiered.object_keys import (
    Layout,
    RemoteFile,
    RemoteObjects,
    group_by_segment,
    parse_aiven_topic_dir,
    parse_local_tiered_dir,
    parse_partition_number,
    remote_key,
)
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition

KEYS = Path(__file__).parent / "keys"
KEY_ID = "one"


class AivenMode(Enum):
    """(compressed, encrypted)."""

    PLAIN = (False, False)
    ZSTD = (True, False)
    ENCRYPTED = (False, True)
    ZSTD_ENCRYPTED = (True, True)


class Encryptor:
    """AES-256-GCM with a key and AAD of the segment's own. The IVs are those of a counter: the same in every run."""

    def __init__(self, name: str, key_id: str = KEY_ID) -> None:
        self.data_key = hashlib.sha256(f"key of {name}".encode()).digest()
        self.aad = hashlib.sha256(f"aad of {name}".encode()).digest()
        self._cipher = AESGCM(self.data_key)
        self._key_id = key_id
        self._count = 0

    def encrypt(self, data: bytes) -> bytes:
        self._count += 1
        iv = self._count.to_bytes(12, "big")
        return iv + self._cipher.encrypt(iv, data, self.aad)

    def described(self) -> SegmentEncryption:
        public = RSA.import_key((KEYS / f"{self._key_id}.public.pem").read_text())
        wrapped = PKCS1_OAEP.new(public, hashAlgo=SHA3_512).encrypt(self.data_key)
        return SegmentEncryption(self._key_id, wrapped, self.aad)


def transform(data: bytes, chunk_size: int, compress: bool, encryptor: Encryptor | None) -> tuple[bytes, ChunkIndex]:
    """The object of a segment's bytes, and where its chunks lie."""
    chunks = [data[at : at + chunk_size] for at in range(0, len(data), chunk_size)]
    if compress:
        chunks = [zstandard.ZstdCompressor(write_content_size=True).compress(chunk) for chunk in chunks]
    if encryptor:
        chunks = [encryptor.encrypt(chunk) for chunk in chunks]
    if compress:
        index = ChunkIndex.of_variable(chunk_size, len(data), np.array([len(chunk) for chunk in chunks], np.int64))
    else:
        overhead = 28 if encryptor else 0
        index = ChunkIndex.of_fixed(chunk_size, len(data), chunk_size + overhead, len(chunks[-1]) if chunks else 0)
    return b"".join(chunks), index


def segment_objects(
    segment: RemoteSegment, files: Mapping[RemoteFile, bytes], mode: AivenMode, chunk_size: int, key_id: str = KEY_ID
) -> tuple[SegmentManifest, dict[RemoteFile, bytes]]:
    """The manifest and the objects of one segment, in the order of the plugin's uploads. files: its log and indexes."""
    compress, encrypt = mode.value
    encryptor = Encryptor(segment.name, key_id) if encrypt else None
    log, chunks = transform(files[RemoteFile.LOG], chunk_size, compress, encryptor)
    indexes, places = b"", {}
    for file in INDEX_FIELDS:
        if file in files:
            data = encryptor.encrypt(files[file]) if encryptor and files[file] else files[file]
            places[file] = IndexRange(len(indexes), len(data))
            indexes += data
    described = encryptor.described() if encryptor else None
    manifest = SegmentManifest(chunks, compress, described, places, segment)
    return manifest, {
        RemoteFile.LOG: log,
        RemoteFile.INDEXES: indexes,
        RemoteFile.MANIFEST: format_manifest(manifest),
    }


def write_segment(
    target: Path,
    segment: RemoteSegment,
    files: Mapping[RemoteFile, bytes],
    mode: AivenMode,
    chunk_size: int,
    key_prefix: str = "",
    key_id: str = KEY_ID,
) -> SegmentManifest:
    """Write one segment's objects below `target`."""
    manifest, objects = segment_objects(segment, files, mode, chunk_size, key_id)
    for file, data in objects.items():
        path = target / remote_key(Layout.AIVEN, segment, file, key_prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return manifest


def local_tiered_files(root: Path) -> dict[str, dict[RemoteFile, bytes]]:
    """Names of the segments below a LocalTieredStorage directory, and what their files hold."""
    return {
        Path(objects.objects[RemoteFile.LOG]).name.removesuffix(".log"): {
            file: (root / key).read_bytes() for file, key in objects.objects.items()
        }
        for objects in objects_below(root, Layout.LOCAL_TIERED)
    }


def objects_below(root: Path, layout: Layout, key_prefix: str = "") -> list[RemoteObjects]:
    """The objects of all partitions below a folder, with their keys in the place of names."""
    found: list[RemoteObjects] = []
    for directory in sorted({path.parent for path in root.rglob("*") if path.is_file()}):
        if layout is Layout.AIVEN:
            topic = parse_aiven_topic_dir(directory.parent.name, key_prefix.rpartition("/")[2])
            number = parse_partition_number(directory.name)
            partition = None if topic is None or number is None else TopicIdPartition(*topic, number)
        else:
            partition = parse_local_tiered_dir(directory.name)
        assert partition is not None, directory
        for objects in group_by_segment([path.name for path in directory.iterdir()], layout, partition):
            keys = {file: f"{directory.relative_to(root)}/{name}" for file, name in objects.objects.items()}
            found.append(objects._replace(objects=keys))
    return found


def write_tree(
    root: Path, segments: Iterable[RemoteSegment], target: Path, mode: AivenMode, chunk_size: int, key_prefix: str = ""
) -> list[SegmentManifest]:
    """Write `segments`, whose files lie below the LocalTieredStorage directory `root`, as Aiven's below `target`."""
    files = local_tiered_files(root)
    return [write_segment(target, segment, files[segment.name], mode, chunk_size, key_prefix) for segment in segments]


def original_bytes(codec: ChunkCodec, index: ChunkIndex, stored: bytes, begin: int, end: int) -> bytes:
    """Bytes [begin, end) of the segment, of which `stored` is the range of the object that `object_range` names."""
    at = index.object_range(begin, end).begin
    return b"".join(
        bytes(codec.decode_chunk(stored[chunk.position - at :][: chunk.size], chunk))[first:last]
        for chunk, first, last in index.slices(begin, end)
    )
