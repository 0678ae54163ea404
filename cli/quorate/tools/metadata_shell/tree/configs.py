"""/image/configs: dynamic configs by resource. Sensitive values are shown, as Kafka's shell shows them."""

from quorate_protocol.image import ConfigResource, ImageState

from quorate.tools.metadata_shell.tree.nodes import Directory, Node, value

_TYPES = {0: "UNKNOWN", 2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
"""ConfigResource.Type."""


def configs(image: ImageState) -> Directory:
    """`TYPE:name`, or `TYPE` for the defaults of all resources of that type."""

    def child(name: str) -> Node | None:
        type_name, _, resource_name = name.partition(":")
        number = next((number for number, known in _TYPES.items() if known == type_name), None)
        if number is None:
            return None
        resource = (number, resource_name)
        return _entries(image, resource) if resource in image.configs else None

    return Directory(lambda: map(_name, image.configs), child)


def _name(resource: ConfigResource) -> str:
    number, resource_name = resource
    type_name = _TYPES.get(number, _TYPES[0])
    return f"{type_name}:{resource_name}" if resource_name else type_name


def _entries(image: ImageState, resource: ConfigResource) -> Directory:
    entries = image.configs[resource]

    def child(name: str) -> Node | None:
        return value(entries[name]) if name in entries else None

    return Directory(lambda: entries, child)
