"""Security of the broker: TLS, SASL mechanisms, principals of clients, and ACLs. Sockets are in `net`."""
