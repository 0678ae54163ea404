"""Feature levels: which the cluster has, and changing them (KIP-584, KIP-778, KIP-1022)."""

from collections.abc import Mapping

from quorate_admin.operations.base import Operations, To
from quorate_admin.types.features import FeatureDescription, FeatureUpdate


class FeatureOperations(Operations):
    """ApiVersions for the levels, and UpdateFeatures."""

    async def describe_features(
        self, *, node_id: int | None = None, timeout_ms: int | None = None
    ) -> FeatureDescription:
        """Feature levels as one node knows them (ApiVersions): a given one, or any. Raises AdminError."""
        to = To.ANY if node_id is None else To.node(node_id)
        response = await self._api_versions(to, timeout_ms=timeout_ms)
        return FeatureDescription(
            finalized={key.name: key.max_version_level for key in response.finalized_features},
            finalized_epoch=response.finalized_features_epoch,
            supported={key.name: (key.min_version, key.max_version) for key in response.supported_features},
        )

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Change levels, all or none (UpdateFeatures version 2, KIP-1022). Raises AdminError.

        :raises ServerError: why not; its message names the first feature that can't be changed.
        """
        from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest

        request = UpdateFeaturesRequest(
            timeout=self._server_timeout(timeout_ms),
            feature_updates=tuple(
                FeatureUpdateKey(
                    feature=name, max_version_level=update.max_level, upgrade_type=int(update.upgrade_type)
                )
                for name, update in updates.items()
            ),
            validate_only=validate_only,
        )
        await self._ask(request, timeout_ms=timeout_ms)
