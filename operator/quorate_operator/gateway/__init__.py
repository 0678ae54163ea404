"""Facts from Kafka, and the steps that are done by its RPCs: the same wherever a cluster runs."""
