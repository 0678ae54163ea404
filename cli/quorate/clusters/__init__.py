"""Clusters on Kubernetes, as users see them. The commands read, explain and change only their resources."""
