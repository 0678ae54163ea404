"""Decides which resource has a name in Kafka: the oldest only, however each of them addresses the Kafka cluster."""

from quorate_operator.runtime.kubernetes.api import Object

_Precedence = tuple[str, str, str]
_Place = tuple[str, str, str]


class Claims:
    """The names that resources have been seen to claim since the operator started, in one event loop."""

    def __init__(self) -> None:
        self._by_place: dict[_Place, dict[str, _Precedence]] = {}
        self._places: dict[str, _Place] = {}

    def put(self, cluster_id: str, body: Object, name: str) -> None:
        """Store that a resource claims this name in the cluster with this id. Its earlier claim ends."""
        uid, place = body["metadata"]["uid"], (cluster_id, body["kind"], name)
        if self._places.get(uid) != place:
            self.release(uid)
        self._places[uid] = place
        self._by_place.setdefault(place, {})[uid] = _precedence(body)

    def release(self, uid: str) -> None:
        place = self._places.pop(uid, None)
        if place is not None:
            claims = self._by_place[place]
            del claims[uid]
            if not claims:
                del self._by_place[place]

    def other_holder(self, cluster_id: str, body: Object, name: str) -> str | None:
        """Return namespace/name of the resource that has the name, None if this one has it."""
        claims = self._by_place[cluster_id, body["kind"], name]
        uid, (_, namespace, holder) = min(claims.items(), key=lambda item: item[1])
        return None if uid == body["metadata"]["uid"] else f"{namespace}/{holder}"


def _precedence(body: Object) -> _Precedence:
    metadata = body["metadata"]
    return metadata.get("creationTimestamp", ""), metadata["namespace"], metadata["name"]
