"""What the rules look at: the entries of a profile that are well formed, and the names of all of them.

A profile with one bad entry still has its other entries checked, so that an owner sees every finding at
once. Therefore the rules work on a draft: an entry that is not well formed is missing from the mappings but
present in `names`, so nothing that refers to it is called unknown. The rules of the entry itself follow
once it is well formed: half an operation would only give misleading findings.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from issuer.profile.findings import FindingCode, KeyPath, Problem
from issuer.profile.models import ActionClass, Actor, Audit, Host, Notify, Operation, Person, RegistrySource

__all__ = ["Draft", "unknown_name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The well-formed parts of one document; `names` lists what each section declares, well formed or not."""

    timezone: str | None
    audit: Audit | None
    people: Mapping[str, Person]
    actors: Mapping[str, Actor]
    hosts: Mapping[str, Host]
    registries: Mapping[str, RegistrySource]
    classes: Mapping[str, ActionClass]
    operations: Mapping[str, Operation]
    notices: Mapping[str, Notify]
    names: Mapping[str, tuple[str, ...]]


def unknown_name(draft: Draft, path: KeyPath, section: str, name: str) -> list[Problem]:
    """Return the problem that `section` declares no `name`, or nothing."""
    declared = draft.names.get(section, ())
    if name in declared:
        return []
    message = f'There is no [{section}] entry "{name}".'
    return [
        Problem(path=path, code=FindingCode.UNKNOWN_NAME, message=message, wanted=name, candidates=declared)
    ]
