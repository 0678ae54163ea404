"""Builders of Kubernetes manifests: what a cluster is made of, as plain objects. Pure."""
