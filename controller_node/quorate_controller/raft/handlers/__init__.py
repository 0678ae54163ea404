"""What a replica does with each request and response: one module per concern."""
