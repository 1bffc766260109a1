"""Entity tags: which of them can guard a write.

Rule (EFF-07): only a strong tag changes with every change of what it stands for; a weak one (`W/`) may stay, and
If-Match compares strongly (RFC 9110, sections 8.8.1 and 13.1.1). Pure. Next: `issuer.operations.http_before` reads
one, `issuer.operations.http_adapter` sends it back.
"""

import re
from collections.abc import Sequence
from typing import Final, TypeGuard

from issuer.operations.contract import TargetUnreadableError

__all__ = ["is_strong", "read_tag"]

_STRONG: Final = re.compile(r'"[!#-~]{0,254}"')
"""RFC 9110, section 8.8.3, in ASCII; 256 characters are far more than servers use."""


def is_strong(tag: object) -> TypeGuard[str]:
    """Whether this is a strong entity tag with its quotes."""
    return type(tag) is str and _STRONG.fullmatch(tag) is not None


def read_tag(values: Sequence[bytes]) -> str:
    """Return the one strong entity tag of an answer, from every value of its ETag field.

    Raises:
        TargetUnreadableError: `tag_missing`, `tag_weak` or `tag_malformed`.
    """
    if not values:
        raise TargetUnreadableError("tag_missing")
    if values[0].startswith(b"W/"):
        raise TargetUnreadableError("tag_weak")
    tag = values[0].decode("latin-1")
    if len(values) > 1 or not is_strong(tag):
        raise TargetUnreadableError("tag_malformed")
    return tag
