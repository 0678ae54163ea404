"""`quorate topics`: the options and the output of kafka-topics (Kafka 4.4.0), and JSON."""
