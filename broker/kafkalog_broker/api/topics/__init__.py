"""APIs about topics, their partitions and the deletion of records."""
