"""The reconcile of topics and users: one task for each Kafka cluster that they are in."""
