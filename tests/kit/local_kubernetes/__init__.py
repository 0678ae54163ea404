"""A real Kubernetes on this machine, from package registries alone, for tests and benchmarks.

`golang` builds programs into a cache, `api_server` runs a control plane of etcd and kube-apiserver.
"""
