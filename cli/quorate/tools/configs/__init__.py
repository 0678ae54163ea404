"""`quorate configs`: the options and the output of kafka-configs (Kafka 4.4.0), and JSON."""
