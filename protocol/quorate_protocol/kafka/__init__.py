"""Kafka's vocabulary: its enums (:mod:`.enums`) and its APIs (:mod:`.apis`), each fact in one place.

Importing these modules imports no message class, so that a tool that needs one enum does not load the protocol.
"""
