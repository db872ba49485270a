"""Authentication of peers: certificates, contexts for TLS, names of principals. Nothing here has a socket."""
