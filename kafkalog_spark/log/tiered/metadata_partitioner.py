"""Assignment of partitions to the partitions of `__remote_log_metadata` (Kafka: RemoteLogMetadataTopicPartitioner)."""

from __future__ import annotations

from kafkalog_spark.log.tiered.remote_segment import TopicIdPartition

_MASK_32 = (1 << 32) - 1
_MURMUR_FACTOR, _MURMUR_SEED = 0x5BD1E995, 0x9747B28C  # constants of org.apache.kafka.common.utils.Utils.murmur2


def metadata_partition(partition: TopicIdPartition, partitions: int) -> int:
    """Return the number of the metadata partition that has the events of a partition.

    Kafka takes the murmur2 hash of the four bytes of Java's Objects.hash(topic ID, partition).

    Args:
        partition: Partition with remote segments.
        partitions: Number of partitions of `__remote_log_metadata`.
    """
    high, low = partition.topic_id.int >> 64, partition.topic_id.int & (1 << 64) - 1
    java_hash = 1
    for component in (low ^ low >> 32, high ^ high >> 32, partition.partition):
        java_hash = (31 * java_hash + component) & _MASK_32
    word = int.from_bytes(java_hash.to_bytes(4, "big"), "little") * _MURMUR_FACTOR & _MASK_32
    word = (word ^ word >> 24) * _MURMUR_FACTOR & _MASK_32
    hashed = ((_MURMUR_SEED ^ 4) * _MURMUR_FACTOR & _MASK_32) ^ word
    hashed = (hashed ^ hashed >> 13) * _MURMUR_FACTOR & _MASK_32
    return ((hashed ^ hashed >> 15) & 0x7FFFFFFF) % partitions
