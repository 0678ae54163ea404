"""Batch and streaming jobs that keep a lake of tables. Spark sessions are started only here."""
