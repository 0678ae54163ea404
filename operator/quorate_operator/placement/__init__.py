"""Where a replica may go, for all that moves replicas. Pure."""
