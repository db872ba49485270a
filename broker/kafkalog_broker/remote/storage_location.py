"""Location of a broker's remote segments: checked at the start, and recorded in the log directories.

A folder may be a mount point, which is missing or empty while its file system is not mounted. A broker that started
anyway would copy segments to the wrong file system, and treat missing segments as deleted. Therefore a configured
folder must exist. If remote segments are known, it must contain a marker file or one of the segments.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.remote.remote_log_metadata_cache import COPY_FINISHED
from kafkalog_broker.remote.remote_log_metadata_manager import RemoteLogMetadataManager
from kafkalog_spark.errors import KafkalogError, OptionError, RemoteStorageError
from kafkalog_spark.format.atomic_file import replace_file
from kafkalog_spark.format.meta_properties import parse_properties
from kafkalog_spark.format.names import INDEX_CACHE_DIR, REMOTE_STORAGE_FILE, REMOTE_STORAGE_MARKER
from kafkalog_spark.log.remote.remote_index_cache import BoundedDirectory
from kafkalog_spark.log.remote.remote_storage import RemoteStorage
from kafkalog_spark.log.remote.remote_storage_options import DEFAULT_PREFIX, PREFIX_NAME, RemoteStorageOptions
from kafkalog_spark.log.tiered.object_keys import Layout
from kafkalog_spark.store.paths import is_local, normalised

_log = logging.getLogger(__name__)

_DEFAULT_SUFFIX = "-remote"  # of the default folder for remote segments
_SAMPLE_SIZE = 20
"""Number of known segments to look for. One must be found; others may be lost for another reason."""


def open_remote_storage(config: Callable[[], BrokerConfig], first: Path, directories: Sequence[Path]) -> RemoteStorage:
    """Return the configured storage, by default a folder beside `first`.

    Blocks, but makes no request to a store, so that an unreachable bucket does not delay the start.

    Args:
        config: Returns the current configuration.
        first: First of the configured log directories, even if it is offline.
        directories: Log directories that are online.

    Raises:
        OptionError: If a property cannot be used: the folder does not exist, a key or credentials cannot be read.
    """
    default = normalised(str(first.with_name(first.name + _DEFAULT_SUFFIX)))
    static = config().static
    options = RemoteStorageOptions.of(static, default)
    if is_local(options.root) and options.folder != default and not Path(options.folder).is_dir():
        raise OptionError(
            f"{_folder_property(static, options)} is {options.folder}, which is not a directory",
            hint="create it, or mount the file system that belongs there",
        )
    index_cache = BoundedDirectory(
        directories[0] / INDEX_CACHE_DIR, lambda: config().remote_log_index_file_cache_total_size_bytes
    )
    storage = RemoteStorage(options, index_cache)
    storage.check_settings()
    return storage


def settle_location(
    storage: RemoteStorage, metadata: RemoteLogMetadataManager, directories: Sequence[Path], now_ms: int
) -> None:
    """Verify that known remote segments are in `storage`, and record its location in each log directory.

    The folder of a local storage is marked. Blocks. Requests to a bucket are made only if the directories record
    another location.

    Raises:
        RemoteStorageError: If the location contains none of the segments that `__remote_log_metadata` names. Nothing
            was changed then.
        OptionError: If the folder cannot be written to.
    """
    options = storage.options
    segments = [segment for cache in metadata.partitions.values() for segment in cache.in_state(COPY_FINISHED)]
    recorded = _recorded(directories)
    moved = recorded is not None and recorded.location != options.location
    if segments and (moved or not storage.is_marked):
        step = -(-len(segments) // _SAMPLE_SIZE)
        try:
            has_segment = any(map(storage.holds, segments[::step]))
        except RemoteStorageError as error:
            if is_local(options.root):
                raise
            assert recorded is not None
            _log.warning(
                "remote storage is now %s, but %s of the log directory names %s; the file is kept, because the new "
                "location cannot be checked for the %d remote segments: %s",
                _shown(options), REMOTE_STORAGE_FILE, _shown(recorded), len(segments), error,
            )  # fmt: skip
            return
        if not has_segment:
            raise _missing_segments(options, recorded if moved else None, len(segments))
    try:
        storage.mark()
    except OSError as error:
        raise OptionError(f"the folder of remote storage {options.folder} is not writable: {error.strerror}") from None
    content = options.recorded_file(datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC))
    for directory in directories:
        replace_file(directory / REMOTE_STORAGE_FILE, content, private=True)


def _missing_segments(
    options: RemoteStorageOptions, recorded: RemoteStorageOptions | None, count: int
) -> RemoteStorageError:
    if recorded is not None:
        return RemoteStorageError(
            f"remote storage is now {_shown(options)}, which holds none of the {count} remote segments of this log "
            f"directory; {REMOTE_STORAGE_FILE} in it says that they are in {_shown(recorded)}",
            hint="set the properties rsm.config.* to that location, or move the segments before the start",
        )
    return RemoteStorageError(
        f"{options.folder} holds none of the {count} remote segments that __remote_log_metadata names",
        hint=f"mount or restore the file system; if the segments are lost, create the file {REMOTE_STORAGE_MARKER} "
        "in it to start without them",
    )


def _recorded(directories: Sequence[Path]) -> RemoteStorageOptions | None:
    """Return the location that the first readable file of the log directories records; None without one."""
    for directory in directories:
        path = directory / REMOTE_STORAGE_FILE
        try:
            return RemoteStorageOptions.of_recorded(parse_properties(path.read_bytes()))
        except FileNotFoundError:
            continue
        except (OSError, KafkalogError) as error:
            _log.warning("%s cannot be read and will be replaced: %s", path, error)
    return None


def _shown(options: RemoteStorageOptions) -> str:
    return options.folder + (f" with key.prefix {options.key_prefix}" if options.key_prefix else "")


def _folder_property(properties: Mapping[str, str], options: RemoteStorageOptions) -> str:
    name = "dir" if options.layout is Layout.LOCAL_TIERED else "storage.root"
    return properties.get(PREFIX_NAME, DEFAULT_PREFIX) + name
