"""The operator's commands. The `quorate` command loads each of them when it is called."""
