"""Kafka's vocabulary: its enums, with Kafka's names and codes, each in one class.

Every package takes them from here. Nothing here imports a message class, so that a tool that needs one enum does not
load the protocol.
"""
