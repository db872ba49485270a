"""Ask a real Kafka the script about streams groups and keep its answers:
python -m tests.broker.groups.record_streams_groups

Writes kafka-4.3.0-streams-groups.json.xz, as record_consumer_groups.py does its file.
"""

from tests.broker.groups.helpers import streams_script
from tests.broker.groups.record_consumer_groups import record

if __name__ == "__main__":
    record("streams-groups", streams_script.PROPERTIES, streams_script.TOPICS, streams_script.run)
