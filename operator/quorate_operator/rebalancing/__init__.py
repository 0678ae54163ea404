"""Even clusters: which replicas move where, and which of them are preferred as leaders. Pure."""
