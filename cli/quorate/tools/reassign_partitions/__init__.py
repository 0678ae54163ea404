"""`quorate reassign-partitions`: the options and the output of kafka-reassign-partitions (Kafka 4.3.1), and JSON."""
