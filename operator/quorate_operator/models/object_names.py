"""Names of Kubernetes objects, derived from names in manifests."""

import hashlib

NAME_LENGTH_MAX = 63


def dns_label(listener: str) -> str:
    """Return a listener's name in lower case, as Kubernetes requires."""
    return listener.lower().replace("_", "-").strip("-")


def short_name(name: str) -> str:
    """Return the name; one that is too long for Kubernetes is cut and ends with a hash."""
    if len(name) <= NAME_LENGTH_MAX:
        return name
    suffix = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: NAME_LENGTH_MAX - 9].rstrip('-')}-{suffix}"


def certificate_name(pool: str, listener: str) -> str:
    """Return the name of the Certificate of a listener, and of the Secret with its certificate."""
    return short_name(f"{pool}-{dns_label(listener)}-tls")


def authority_name(cluster: str) -> str:
    """Return the name of the Secret of a cluster's own authority."""
    return short_name(f"{cluster}-ca")


def authority_certificate_name(cluster: str) -> str:
    """Return the name of the ConfigMap with the certificates of a cluster's authority, for clients."""
    return short_name(f"{cluster}-ca-cert")
