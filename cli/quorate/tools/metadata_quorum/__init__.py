"""`quorate metadata-quorum`: the options and the output of kafka-metadata-quorum (Kafka 4.3.1), and JSON."""
