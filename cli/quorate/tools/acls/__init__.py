"""`quorate acls`: the options and the output of kafka-acls (Kafka 4.3.1), and JSON."""
