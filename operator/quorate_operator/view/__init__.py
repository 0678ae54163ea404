"""One view of a cluster, which every surface renders: commands, the resources' status, the status page, metrics."""
