"""Implementation digest: which code and which settings would carry out an operation.

Rule: OPR-02, an upgraded or swapped implementation voids outstanding permits. The digest covers the source of
the modules that an adapter names, and the owner's settings for it; a comment that changed counts as well,
because nothing here can tell which change matters. It does not cover the interpreter or the operating system.
Next: the contract puts it in every binding.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from issuer.operations.templates import Placeholder, Template
from ledger.canonical import canonical_bytes, digest

_FOLDER: Final = Path(__file__).parent
_DOMAIN: Final = "permit-issuer/implementation/v1"
_SOURCE_DOMAIN: Final = "permit-issuer/implementation-source/v1"


def implementation_digest(kind: str, sources: Iterable[str], settings: Mapping[str, object]) -> str:
    """Return 64 hex digits for this code with these settings.

    Args:
        kind: the adapter's word.
        sources: the source files that decide what is sent: names in this folder, or absolute paths.
        settings: what the owner chose, as JSON values; never a credential.

    Raises:
        OSError: a source is not there to be read; an adapter whose code cannot be named cannot be registered.
        Malformed: a setting has no canonical form.
    """
    body = {
        "kind": kind,
        "sources": sorted(
            digest(_SOURCE_DOMAIN, (_FOLDER / source).read_bytes()).hex() for source in sources
        ),
        "settings": settings,
    }
    return digest(_DOMAIN, canonical_bytes(body)).hex()


def template_parts(template: Template) -> list[object]:
    """Return a template as JSON values that differ wherever two templates differ.

    A literal is text; a placeholder is a list, so that an owner's braces are not mistaken for one.
    """
    return [
        [part.name, "" if part.column is None else part.column] if isinstance(part, Placeholder) else part
        for part in template.parts
    ]
