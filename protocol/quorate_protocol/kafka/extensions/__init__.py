"""The messages of APIs that Kafka does not have, in the form of the generated classes."""
