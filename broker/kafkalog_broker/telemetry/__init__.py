"""Metrics that clients push to the broker (KIP-714): subscriptions, and client instances."""
