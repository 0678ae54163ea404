"""What Kafka itself tells of a cluster and does for it, the same for every place that a cluster runs in."""
