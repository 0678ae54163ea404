"""What a replica does with each request and response: one module per pair of messages, or per concern."""
