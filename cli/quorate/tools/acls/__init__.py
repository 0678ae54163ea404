"""`quorate acls`: the options and the output of kafka-acls (Kafka 4.4.0), and JSON."""
