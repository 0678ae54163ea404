"""Observing a cluster's metadata log from outside: the whole image, live, through its controllers.

No release of Kafka offers this. The controllers take the Fetch of a client that is no replica as they take a
consumer's: it is in no voter set, in no list of observers, and nothing waits for it. It needs CLUSTER_ACTION
on the cluster where there is an authorizer, as any Fetch at a controller's listener does.

    image = await load_live_image(AdminConfig.from_properties({}, bootstrap_controllers=["localhost:9093"]))
    for controller_id, registration in image.cluster.controllers.items():
        print(controller_id, registration.supported_features)

:class:`~quorate_admin.observing.live.LiveImage` is the same for whoever wants to look again later, and
:class:`~quorate_admin.observing.feed.MetadataFeed` for whoever wants each committed batch.
"""

from quorate_admin.observing.feed import MetadataFeed, ObservingError
from quorate_admin.observing.live import LiveImage, load_live_image

__all__ = ("LiveImage", "MetadataFeed", "ObservingError", "load_live_image")
