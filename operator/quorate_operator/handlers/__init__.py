"""The operator process: thin kopf wiring that wakes one idempotent reconcile for each cluster."""
