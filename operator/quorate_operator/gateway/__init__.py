"""Facts from Kafka, and steps that its RPCs do: the same wherever a cluster runs."""
