"""The infrastructure of clusters on Kubernetes: pods, volumes and Services of each node."""
