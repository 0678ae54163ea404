"""`affinity` of pods, with the fields of Kubernetes' Affinity (core/v1, of Kubernetes 1.34).

What Kubernetes takes is taken, and is put into pods as it was written: no field has a default, and rules that concern
several fields are left to the API server, which is asked before a node is restarted.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from quorate_operator.models.base import LabelKey, LabelValue, Model, Text

TERMS_MAX = 1_000
"""A bound for the CRD: Kubernetes itself has no limit."""
_ATOMIC = {"x-kubernetes-list-type": "atomic"}
_Texts = Annotated[tuple[Text, ...], Field(strict=False, max_length=TERMS_MAX, json_schema_extra=_ATOMIC)]
_Keys = Annotated[tuple[LabelKey, ...], Field(strict=False, max_length=TERMS_MAX, json_schema_extra=_ATOMIC)]
_Weight = Annotated[int, Field(ge=1, le=100)]


class NodeSelectorRequirement(Model):
    """A demand on a label or field of a node."""

    key: LabelKey = Field(description="The label, or the field metadata.name.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(
        description="How it compares with the values."
    )
    values: _Texts | None = Field(default=None, description="The values; none for Exists and DoesNotExist.")


_NodeRequirements = Annotated[
    tuple[NodeSelectorRequirement, ...],
    Field(strict=False, max_length=TERMS_MAX, json_schema_extra=_ATOMIC),
]


class NodeSelectorTerm(Model):
    """Demands that a node must all meet."""

    match_expressions: _NodeRequirements | None = Field(default=None, description="Demands on labels.")
    match_fields: _NodeRequirements | None = Field(default=None, description="Demands on fields.")


class NodeSelector(Model):
    """Terms of which a node must meet one."""

    node_selector_terms: Annotated[
        tuple[NodeSelectorTerm, ...],
        Field(strict=False, min_length=1, max_length=TERMS_MAX, json_schema_extra=_ATOMIC),
    ] = Field(description="The terms.")


class PreferredSchedulingTerm(Model):
    """A preference about nodes."""

    weight: _Weight = Field(description="Its weight.")
    # Kubernetes takes a term without it, which has no effect.
    preference: NodeSelectorTerm | None = Field(default=None, description="The nodes that are preferred.")


class NodeAffinity(Model):
    """The nodes that may run a pod."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = Field(
        default=None, description="The nodes that may run the pod."
    )
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[
            tuple[PreferredSchedulingTerm, ...],
            Field(strict=False, max_length=TERMS_MAX, json_schema_extra=_ATOMIC),
        ]
        | None
    ) = Field(default=None, description="The nodes that are preferred.")


class LabelSelectorRequirement(Model):
    """A demand on a label."""

    key: LabelKey = Field(description="The label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="How it compares with the values."
    )
    values: _Texts | None = Field(default=None, description="The values; none for Exists and DoesNotExist.")


class LabelSelector(Model):
    """Demands on labels, all of which must be met."""

    match_labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=TERMS_MAX)] | None = Field(
        default=None, description="Labels with their values."
    )
    match_expressions: (
        Annotated[
            tuple[LabelSelectorRequirement, ...],
            Field(strict=False, max_length=TERMS_MAX, json_schema_extra=_ATOMIC),
        ]
        | None
    ) = Field(default=None, description="Demands on labels.")


class PodAffinityTerm(Model):
    """Other pods, and the topology in which they are near."""

    label_selector: LabelSelector | None = Field(default=None, description="The labels of the other pods.")
    namespaces: _Texts | None = Field(default=None, description="Their namespaces. Default: that of the pod.")
    topology_key: LabelKey = Field(description="The label of nodes whose equal values make pods near.")
    namespace_selector: LabelSelector | None = Field(
        default=None, description="The labels of more of their namespaces."
    )
    match_label_keys: _Keys | None = Field(
        default=None, description="Labels whose values the other pods must share with the pod."
    )
    mismatch_label_keys: _Keys | None = Field(
        default=None, description="Labels whose values the other pods must not share with the pod."
    )


class WeightedPodAffinityTerm(Model):
    """A preference about other pods."""

    weight: _Weight = Field(description="Its weight.")
    pod_affinity_term: PodAffinityTerm = Field(description="The other pods.")


_Terms = Annotated[
    tuple[PodAffinityTerm, ...], Field(strict=False, max_length=TERMS_MAX, json_schema_extra=_ATOMIC)
]
_WeightedTerms = Annotated[
    tuple[WeightedPodAffinityTerm, ...], Field(strict=False, max_length=TERMS_MAX, json_schema_extra=_ATOMIC)
]


class PodAffinity(Model):
    """The pods near which a pod is to run, or is not to run."""

    required_during_scheduling_ignored_during_execution: _Terms | None = Field(
        default=None, description="What must hold."
    )
    preferred_during_scheduling_ignored_during_execution: _WeightedTerms | None = Field(
        default=None, description="What is preferred."
    )


class Affinity(Model):
    """Where pods run."""

    node_affinity: NodeAffinity | None = Field(default=None, description="On which nodes.")
    pod_affinity: PodAffinity | None = Field(default=None, description="Near which other pods.")
    pod_anti_affinity: PodAffinity | None = Field(default=None, description="Away from which other pods.")

    def rendered(self) -> dict[str, Any]:
        """Return it as a pod has it: the fields that were written."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")
