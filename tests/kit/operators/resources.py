"""KafkaTopics, KafkaUsers and KafkaRebalances of a namespace, as tests change and read them."""

from collections.abc import Mapping
from typing import Any

from kit.operators.operated import GROUP, QUORUM, VERSION, Operated, condition_of
from kubernetes.client import ApiException


class InClusters:
    """The resources of one kind that are in Kafka clusters."""

    def __init__(self, operated: Operated, kind: str, namespace: str | None = None) -> None:
        self.operated = operated
        self._kind = kind
        self._place = (GROUP, VERSION, namespace or operated.namespace, f"{kind.lower()}s")

    def create(self, name: str, **spec: Any) -> None:
        """Apply a resource; None leaves a field out."""
        whole = {key: value for key, value in {"cluster": QUORUM, **spec}.items() if value is not None}
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": self._kind,
            "metadata": {"name": name},
            "spec": whole,
        }
        self.operated.custom.create_namespaced_custom_object(*self._place, body)

    def patch(self, name: str, **spec: Any) -> None:
        """Change fields of a spec."""
        self.operated.custom.patch_namespaced_custom_object(*self._place, name, {"spec": spec})

    def annotate(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Set or remove annotations."""
        patch = {"metadata": {"annotations": dict(annotations)}}
        self.operated.custom.patch_namespaced_custom_object(*self._place, name, patch)

    def delete(self, name: str) -> None:
        """Ask for a deletion."""
        self.operated.custom.delete_namespaced_custom_object(*self._place, name)

    def read(self, name: str) -> dict[str, Any] | None:
        """The resource."""
        try:
            return dict(self.operated.custom.get_namespaced_custom_object(*self._place, name))
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    def list(self) -> list[dict[str, Any]]:
        """The resources."""
        return list(self.operated.custom.list_namespaced_custom_object(*self._place)["items"])

    def status(self, name: str) -> dict[str, Any]:
        """Its status; empty until it is written."""
        return dict((self.read(name) or {}).get("status") or {})

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        """A condition of the present generation; empty until it is written."""
        resource = self.read(name) or {}
        status = resource.get("status") or {}
        if status.get("observedGeneration") != resource["metadata"]["generation"]:
            return {}
        return condition_of(resource, kind)

    def wait_ready(self, name: str) -> None:
        """Wait until the resource is as its spec asks for."""
        self.operated.wait(
            lambda: self.condition(name, "Ready").get("status") == "True",
            f"{name} to be ready: {self.status(name)}",
        )
        assert self.condition(name, "Reconciling")["status"] == "False"
        assert "changes" not in self.status(name)
