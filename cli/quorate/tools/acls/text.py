"""The output of `quorate acls`: Kafka's text, and JSON."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from quorate_admin.types.acls import AccessControlEntry, AclBinding, ResourcePattern, ResourcePatternFilter


def pattern_text(pattern: ResourcePattern | ResourcePatternFilter) -> str:
    """As Kafka writes a pattern, and a filter over patterns."""
    name = "<any>" if pattern.name is None else pattern.name
    return f"ResourcePattern(resourceType={pattern.resource_type}, name={name}, patternType={pattern.pattern_type})"


def entry_text(entry: AccessControlEntry) -> str:
    """As Kafka writes an entry."""
    return (
        f"(principal={entry.principal}, host={entry.host}, operation={entry.operation},"
        f" permissionType={entry.permission_type})"
    )


def binding_text(binding: AclBinding) -> str:
    """As Kafka writes a binding."""
    return f"(pattern={pattern_text(binding.pattern)}, entry={entry_text(binding.entry)})"


def added_text(pattern: ResourcePattern, existing: Iterable[AclBinding], added: Sequence[AclBinding]) -> str:
    """The existing entries, and the added ones."""
    text = "".join(f"Acl {binding_text(binding)} already exists.\n" for binding in existing)
    if added:
        text += (
            f"Adding ACLs for resource `{pattern_text(pattern)}`: \n {_entries(b.entry for b in added)}\n\n"
        )
    return text


def _entries(entries: Iterable[AccessControlEntry]) -> str:
    return "\n".join(f"\t{entry_text(entry)}" for entry in entries)


def question(resources: ResourcePatternFilter, entries: Collection[AccessControlEntry]) -> str:
    """The question before a removal. No entries means all entries."""
    if not entries:
        return f"Are you sure you want to delete all ACLs for resource filter `{pattern_text(resources)}`? (y/n)\n"
    return (
        f"Are you sure you want to remove ACLs: \n {_entries(sorted(entries))}\n"
        f" from resource filter `{pattern_text(resources)}`? (y/n)\n"
    )


def list_text(bindings: Iterable[AclBinding], principals: Sequence[str]) -> str:
    """The sorted entries of each pattern; repeated for each principal, if principals are given."""
    all_of_them = sorted(set(bindings))
    if not principals:
        return _patterns_text(all_of_them)
    return "".join(
        f"ACLs for principal `{principal}`\n"
        + _patterns_text(binding for binding in all_of_them if binding.entry.principal == principal)
        for principal in principals
    )


def _patterns_text(bindings: Iterable[AclBinding]) -> str:
    by_pattern: dict[ResourcePattern, list[AccessControlEntry]] = defaultdict(list)
    for binding in bindings:
        by_pattern[binding.pattern].append(binding.entry)
    return "".join(
        f"Current ACLs for resource `{pattern_text(pattern)}`:\n{_entries(entries)}\n\n"
        for pattern, entries in by_pattern.items()
    )


def bindings_json(bindings: Iterable[AclBinding]) -> list[dict[str, Any]]:
    """The bindings as JSON, sorted."""
    return [
        {
            "resourceType": binding.pattern.resource_type.name,
            "resourceName": binding.pattern.name,
            "patternType": binding.pattern.pattern_type.name,
            "principal": binding.entry.principal,
            "host": binding.entry.host,
            "operation": binding.entry.operation.name,
            "permissionType": binding.entry.permission_type.name,
        }
        for binding in sorted(set(bindings))
    ]
