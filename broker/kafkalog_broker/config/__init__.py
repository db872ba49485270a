"""Configuration: Kafka's properties with their defaults and checks, and the settings that are derived from them."""
