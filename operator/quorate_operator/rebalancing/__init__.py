"""Balances a cluster: which replicas move where, and which of them are preferred leaders. Pure."""
