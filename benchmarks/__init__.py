"""Measurements beside stock Kafka, in one run on one machine: every claim of speed is a ratio from here."""
