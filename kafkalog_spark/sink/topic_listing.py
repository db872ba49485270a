"""Topics of a log directory, as the tasks of a write see them."""

from __future__ import annotations

from kafkalog_spark.sink.write_target import WriteTarget


def list_topics(target: WriteTarget) -> dict[str, list[int]]:
    """Return the partitions of each topic, without holding the directory's locks.

    If another sink is creating a topic, all of its future partitions are included, even if their directories do not
    exist yet. Raises as CommitLog.read.
    """
    if target.directory.lists_new_topics_whole:
        return target.directory.topics()
    while True:
        last, last_record = target.log.last()
        topics = target.directory.topics()
        if target.log.look() == last:
            break  # otherwise a commit began or ended meanwhile, and the listing may show a part of its topics
    for topic in () if last.done else last_record.topics:
        topics[topic.name] = sorted({*topics.get(topic.name, ()), *range(topic.partitions)})
    return topics
