"""`quorate metadata-quorum`: the options and the output of kafka-metadata-quorum (Kafka 4.4.0), and JSON."""
