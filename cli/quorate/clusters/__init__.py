"""Clusters in a Kubernetes as a user sees them: read, explained, and changed through their resources alone."""
