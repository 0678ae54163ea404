"""`quorate topics`: the options and the output of kafka-topics (Kafka 4.3.1), and JSON."""
