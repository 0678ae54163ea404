"""`quorate configs`: the options and the output of kafka-configs (Kafka 4.3.1), and JSON."""
