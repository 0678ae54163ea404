"""An affinity with every field that Kubernetes has, as people write it into a manifest."""

from typing import Any

_LABELS: dict[str, Any] = {
    "matchLabels": {"app": "kafka"},
    "matchExpressions": [
        {"key": "team", "operator": "NotIn", "values": ["a", "b"]},
        {"key": "tier", "operator": "Exists"},
    ],
}
_TERM: dict[str, Any] = {
    "labelSelector": _LABELS,
    "namespaces": ["kafka", "staging"],
    "topologyKey": "topology.kubernetes.io/zone",
    "namespaceSelector": {"matchLabels": {"env": "prod"}},
    "matchLabelKeys": ["release"],
    "mismatchLabelKeys": ["tenant"],
}
_NODES: dict[str, Any] = {
    "matchExpressions": [
        {"key": "disk", "operator": "In", "values": ["ssd"]},
        {"key": "cores", "operator": "Gt", "values": ["8"]},
        {"key": "broken", "operator": "DoesNotExist"},
    ],
    "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}],
}
_PODS: dict[str, Any] = {
    "requiredDuringSchedulingIgnoredDuringExecution": [_TERM, {"topologyKey": "kubernetes.io/hostname"}],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": _TERM}],
}
EVERY_FIELD: dict[str, Any] = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_NODES, {}]},
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": _NODES},
            {"weight": 2},
        ],
    },
    "podAffinity": _PODS,
    "podAntiAffinity": _PODS,
}
"""`preference` is left out once, and a term is empty: Kubernetes takes both."""
