"""What is asked of a cluster and what it answers: frozen data in Kafka's words, one module per concern."""
