"""`quorate features`: the options and the output of kafka-features (Kafka 4.3.1), and JSON."""
