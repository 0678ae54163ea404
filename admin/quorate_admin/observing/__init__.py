"""Observing a cluster's metadata log: the whole metadata image, live, from its controllers.

No release of Kafka offers this. Controllers accept a Fetch from a client that is not a replica as they accept a
consumer's: the client is neither a voter nor listed as an observer, and nothing waits for it. With an authorizer it
needs CLUSTER_ACTION on the cluster, as any Fetch at a controller's listener does.

    image = await load_live_image(AdminConfig.from_properties({}, bootstrap_controllers=["localhost:9093"]))
    for controller_id, registration in image.cluster.controllers.items():
        print(controller_id, registration.supported_features)

`LiveImage` keeps an image that can be refreshed, and `MetadataFeed` returns each committed batch.
"""

from quorate_admin.observing.feed import MetadataFeed, ObservingError
from quorate_admin.observing.live import LiveImage, load_live_image

__all__ = ("LiveImage", "MetadataFeed", "ObservingError", "load_live_image")
