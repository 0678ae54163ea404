"""Operations on configs: describe, alter, list what has them."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from quorate_admin.operations.base import Operations
from quorate_admin.results import Results
from quorate_admin.types.configs import AlterConfigOp, ConfigEntry, ConfigResource, ConfigResourceType

__all__ = ("ConfigOperations",)


class ConfigOperations(Operations):
    """Configs are asked of the node that they belong to: BROKER with a name, and BROKER_LOGGER."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[ConfigResource, tuple[ConfigEntry, ...]]:
        """The configs of resources, those with default values included (DescribeConfigs).

        A node that can't be reached is an error of its own resources alone.
        """
        raise NotImplementedError

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfigOp]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[ConfigResource, None]:
        """Change configs one by one and leave the others as they are (IncrementalAlterConfigs, KIP-339).

        With bootstrap controllers, BROKER goes to the active controller, and a BROKER_LOGGER to its
        controller, active or not (KIP-919).
        """
        raise NotImplementedError

    async def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[ConfigResource, None]:
        """Replace all dynamic configs of resources by these (AlterConfigs).

        Kafka has taken it out of its own client: what is set by others in between is lost. Prefer
        `incremental_alter_configs`.
        """
        raise NotImplementedError

    async def list_config_resources(
        self, types: Collection[ConfigResourceType] = (), *, timeout_ms: int | None = None
    ) -> tuple[ConfigResource, ...]:
        """The resources of some types, or of all, that have or can have configs (ListConfigResources, KIP-1142).

        Servers that know version 0 alone list client metrics; topics and nodes are then taken from their
        metadata, and for groups UnsupportedByServerError is raised.
        """
        raise NotImplementedError
