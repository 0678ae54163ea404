"""Finalized feature levels: UpdateFeatures 0-2 (KIP-584, KIP-778, KIP-1022)."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from quorate_protocol import features
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import VersionRange
from quorate_protocol.kafka.apis import APIS, ApiKey
from quorate_protocol.kafka.enums import UpgradeType
from quorate_protocol.kafka.generated.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from quorate_protocol.kafka.generated.update_features_response import UpdateFeaturesResponse
from quorate_protocol.records.generated import FeatureLevelRecord, NoOpRecord
from quorate_protocol.wire.schema import element_class

from quorate_controller.control.api import (
    ControlError,
    ControlResult,
    KRaftVersionUpgrade,
    QuorumPort,
    RequestContext,
)

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage
    from quorate_protocol.records.framing import MetadataRecord

    from quorate_controller.control.config_changes import ConfigManager


class FeatureManager:
    """Decides on feature levels: each must be supported by every broker and every registered controller."""

    def __init__(
        self, node_id: int, image: "MetadataImage", configs: "ConfigManager", quorum: QuorumPort
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._configs = configs
        self._quorum = quorum

    def update_features(self, request: UpdateFeaturesRequest, context: RequestContext) -> ControlResult:
        """UpdateFeatures: all updates or none. Errors stand in the response."""
        updates = {update.feature: update for update in request.feature_updates}
        proposed = {
            **self._image.features,
            **{name: update.max_version_level for name, update in updates.items()},
        }
        try:
            records = [self._update(update, proposed) for update in updates.values()]
        except ControlError as error:
            message = (
                "The update failed for all features since the following feature had an error: "
                f"{error.message}"
            )
            return ControlResult(response=_response(error.error_code, message, (), context))
        response = _response(ErrorCode.none, None, request.feature_updates, context)
        if request.validate_only:
            return ControlResult(response=response)
        safety: tuple[MetadataRecord, ...] = ()
        if (
            proposed.get(features.ELIGIBLE_LEADER_REPLICAS, 0)
            and features.ELIGIBLE_LEADER_REPLICAS in updates
        ):
            safety = self._configs.eligible_leader_replicas_records()
        return ControlResult(
            records=(*safety, *(record for record in records if record is not None)),
            response=response,
            kraft_version=self._kraft_upgrade(updates),
        )

    def _kraft_upgrade(self, updates: Mapping[str, FeatureUpdateKey]) -> KRaftVersionUpgrade | None:
        update = updates.get(features.KRAFT_VERSION)
        if update is None or update.max_version_level <= self._quorum.kraft_version:
            return None
        return KRaftVersionUpgrade(level=update.max_version_level)

    def _update(self, update: FeatureUpdateKey, proposed: Mapping[str, int]) -> "MetadataRecord | None":
        """The record that changes one feature; None without a change."""
        name, level = update.feature, update.max_version_level
        if update.upgrade_type not in tuple(UpgradeType):
            raise _invalid(name, level, "The controller does not support the given upgrade type.")
        current = (
            self._quorum.kraft_version
            if name == features.KRAFT_VERSION
            else self._image.features.get(name, 0)
        )
        if level < 0:
            raise _invalid(name, level, "A feature version cannot be less than 0.")
        reason = self._reason_not_supported(name, level)
        if reason:
            raise _invalid(name, level, reason)
        if level < current and update.upgrade_type == UpgradeType.UPGRADE:
            raise _invalid(
                name,
                level,
                "Can't downgrade the version of this feature without setting the upgrade type to either safe "
                "or unsafe downgrade.",
            )
        if level > current and update.upgrade_type != UpgradeType.UPGRADE:
            raise _invalid(name, level, "Can't downgrade to a newer version.")
        if name == features.METADATA_VERSION:
            is_unsafe = update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE
            self._check_metadata_version(current, level, is_unsafe=is_unsafe)
        elif name == features.KRAFT_VERSION:
            return self._check_kraft_version(current, level)
        elif name not in features.FEATURES:
            raise _invalid(name, level, f"Feature {name} not found.")
        elif unmet := features.unmet_dependency(name, level, proposed):
            raise _invalid(name, level, unmet)
        return FeatureLevelRecord(name=name, feature_level=level)

    def _check_metadata_version(self, current: int, level: int, *, is_unsafe: bool) -> None:
        if level < current and features.loses_records(current, level):
            reason = (
                "Unsafe metadata downgrade is not supported in this version."
                if is_unsafe
                else "Refusing to perform the requested downgrade because it might delete metadata "
                "information."
            )
            raise ControlError(
                ErrorCode.invalid_update_version,
                f"Unsupported metadata.version downgrade from {current} to {level}. {reason}",
            )

    def _check_kraft_version(self, current: int, level: int) -> "MetadataRecord | None":
        """Raft writes the level itself; the response waits for the NoOpRecord."""
        if level < current:
            raise _invalid(features.KRAFT_VERSION, level, "Can't downgrade the version of this feature.")
        if level == current:
            return None
        self._quorum.check_kraft_upgrade(level)
        return NoOpRecord()

    def _reason_not_supported(self, name: str, level: int) -> str | None:
        """The node that does not support `level`: this controller, a broker, a registered controller."""
        local = VersionRange(*features.SUPPORTED_FEATURES.get(name, (0, 0)))
        candidates = [(f"Local controller {self._node_id}", local)]
        disabled = VersionRange(0, 0)
        cluster = self._image.cluster
        candidates += [
            (f"Broker {broker.broker_id}", broker.supported_features.get(name, disabled))
            for broker in cluster.brokers.values()
        ]
        is_registering = self._image.metadata_version >= features.CONTROLLER_REGISTRATION_SINCE
        if is_registering:
            candidates += [
                (f"Controller {controller.controller_id}", controller.supported_features.get(name, disabled))
                for controller in cluster.controllers.values()
                if controller.controller_id != self._node_id
            ]
        for who, supported in candidates:
            if not supported.contains(level):
                if supported.max_level == 0:
                    return f"{who} does not support this feature."
                return f"{who} only supports versions {_range_text(supported)}"
        if is_registering:
            for voter_id in sorted(self._quorum.voter_ids - cluster.controllers.keys() - {self._node_id}):
                return f"controller {voter_id} has not registered, and may not support this feature"
        return None


def _range_text(supported: VersionRange) -> str:
    low, high = supported
    return str(low) if low == high else f"{low}-{high}"


def _invalid(name: str, level: int, reason: str) -> ControlError:
    return ControlError(
        ErrorCode.invalid_update_version, f"Invalid update version {level} for feature {name}. {reason}"
    )


def _response(
    error_code: ErrorCode,
    message: str | None,
    updated: tuple[FeatureUpdateKey, ...],
    context: RequestContext,
) -> Any:
    """Up to version 1 each successful update is listed; version 2 has no field for that."""
    if context.api_version > 1:
        return UpdateFeaturesResponse(
            throttle_time=timedelta(0), error_code=error_code, error_message=message
        )
    response_v1 = APIS[ApiKey.UPDATE_FEATURES].response_class(1)
    result_v1 = element_class(response_v1, "results")
    return response_v1(
        throttle_time=timedelta(0),
        error_code=error_code,
        error_message=message,
        results=tuple(
            result_v1(feature=update.feature, error_code=error_code, error_message="NONE")
            for update in updated
        ),
    )


def changes_elr_level(records: "Iterable[MetadataRecord]") -> bool:
    """Whether these records switch eligible leader replicas on or off."""
    return any(
        isinstance(record, FeatureLevelRecord) and record.name == features.ELIGIBLE_LEADER_REPLICAS
        for record in records
    )
