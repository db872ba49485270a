"""APIs about authentication, users, delegation tokens and ACLs."""
