"""Configuration: Kafka's properties, their defaults, and what this broker makes of them."""
