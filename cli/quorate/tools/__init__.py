"""The Kafka-compatible command-line tools: each module has a Typer `app`, which the `quorate` command loads."""
