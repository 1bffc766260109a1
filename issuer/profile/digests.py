"""The digests of a profile, of one class and of one operation: what a permit is held to (OPR-02, POL-07).

Rules: a digest covers meaning and nothing else. It is taken over the models, so comments, spacing, order of
keys, a default written out, or `600s` for `10m` change nothing, and any other change does. Registries enter
by their own digests, people's keys by their fingerprints. The values are written as one canonical line per leaf
(its path, then the value), because a whole profile may be larger than one canonical document; the lines are
sorted, and canonical text holds no line end, so two different profiles never give the same bytes.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import BaseModel

from issuer.profile.findings import KeyPath
from issuer.profile.models import ActionClass, Document, FieldKind, Operation
from issuer.profile.registry import Registry
from issuer.profile.template import TemplateText
from issuer.sealing import SshKey
from ledger.canonical import canonical_bytes, digest

__all__ = ["class_digest_of", "operation_digest_of", "profile_digest_of"]

_PROFILE_DOMAIN: Final = "permit-issuer/profile/v1"
_CLASS_DOMAIN: Final = "permit-issuer/class/v1"
_OPERATION_DOMAIN: Final = "permit-issuer/operation/v1"


def profile_digest_of(
    document: Document, registries: Mapping[str, Registry], keys: Mapping[str, tuple[SshKey, ...]]
) -> str:
    """Return SHA-256 in lower-case hex over the whole document, the registries' digests and people's keys."""
    lines = [*_leaves((), document), *_registry_leaves(registries), *_key_leaves(keys)]
    return _digest(_PROFILE_DOMAIN, lines)


def class_digest_of(name: str, action_class: ActionClass) -> str:
    """Return SHA-256 in lower-case hex over one class and its name."""
    return _digest(_CLASS_DOMAIN, list(_leaves((name,), action_class)))


def operation_digest_of(name: str, operation: Operation, registries: Mapping[str, Registry]) -> str:
    """Return SHA-256 in lower-case hex over one operation, its name and the registries it uses.

    The class enters by name only: its bounds have a digest of their own.
    """
    used = {
        field.registry: registries[field.registry]
        for field in operation.payload.values()
        if field.kind is FieldKind.REGISTRY and field.registry is not None
    }
    return _digest(_OPERATION_DOMAIN, [*_leaves((name,), operation), *_registry_leaves(used)])


def _registry_leaves(registries: Mapping[str, Registry]) -> Iterator[bytes]:
    for name, registry in registries.items():
        # The leading marker cannot be a key of a model, so no leaf of the document looks like this one.
        yield canonical_bytes([["", name], registry.digest])


def _key_leaves(keys: Mapping[str, tuple[SshKey, ...]]) -> Iterator[bytes]:
    for person, registered in keys.items():
        # A fingerprint is SHA-256 over the whole key. One part more than a registry's line, so neither is the other.
        yield canonical_bytes([["", "person", person], sorted(key.fingerprint for key in registered)])


def _digest(domain: str, lines: list[bytes]) -> str:
    return digest(domain, b"\n".join(sorted(lines))).hex()


def _leaves(path: KeyPath, value: object) -> Iterator[bytes]:
    """Yield one canonical line for each scalar below `value`, and for each empty table or list."""
    if isinstance(value, BaseModel):
        for name, description in type(value).model_fields.items():
            held: object = getattr(value, name)
            if held is not None:
                yield from _leaves((*path, description.alias or name), held)
    elif isinstance(value, Mapping | tuple):
        # Empty is something other than absent, so it has a line of its own.
        if not value:
            yield canonical_bytes([list(path), {} if isinstance(value, Mapping) else []])
        members = value.items() if isinstance(value, Mapping) else enumerate(value)
        for part, held in members:
            yield from _leaves((*path, part), held)
    elif isinstance(value, bool | int):
        yield canonical_bytes([list(path), value])
    else:
        # Templates and field references count as the owner wrote them.
        yield canonical_bytes([list(path), value.text if isinstance(value, TemplateText) else str(value)])
