"""Streams groups (KIP-1071): StreamsGroupHeartbeat, topologies and task assignment."""
