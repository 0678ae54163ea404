"""Nodes' configuration files with Kafka's names: text and mappings in and out. Pure."""
