"""`quorate features`: the options and the output of kafka-features (Kafka 4.4.0), and JSON."""
