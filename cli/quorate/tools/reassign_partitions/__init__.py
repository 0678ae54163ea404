"""`quorate reassign-partitions`: the options and the output of kafka-reassign-partitions (Kafka 4.4.0), and JSON."""
