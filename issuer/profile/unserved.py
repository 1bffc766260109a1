"""What a profile may say and this release does not do yet: one table, one sentence each.

The reader accepts these keys, so that a profile need not be rewritten later. Whoever acts on the profile
asks here first and answers "not supported yet: KEY", because a promise that is silently not kept is worse
than a refusal (OPR-01, OPR-03). `*` in a pattern stands for a name that the owner chose.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from issuer.profile.profile import Profile

__all__ = ["UNSERVED", "Unserved", "unserved", "unserved_anywhere", "unserved_reason"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unserved:
    """One key that is accepted and not served: its pattern, why, and the names it is used under."""

    pattern: str
    sentence: str
    used_by: Callable[[Profile], Iterator[str]]

    def keys(self, profile: Profile) -> Iterator[str]:
        """Yield the dotted keys of `profile` that this entry is about."""
        for name in self.used_by(profile):
            yield self.pattern.replace("*", name)


UNSERVED: Final = (
    Unserved(
        pattern="mode",
        sentence='The promise of mode = "strict" is not given yet; use mode = "ordinary".',
        used_by=lambda profile: iter(("",) if profile.mode == "strict" else ()),
    ),
    Unserved(
        pattern="person.*.login",
        sentence="A person has no token; the login of a person is an account.",
        used_by=lambda profile: (name for name, one in profile.people.items() if one.login == "token"),
    ),
)


def unserved(profile: Profile, operation_name: str | None) -> tuple[str, ...]:
    """Return the dotted keys in use that stand in the way of one operation, or of any command (None).

    With a name: the keys outside all operations, and those of this operation. With None: only the keys
    outside operations. See `unserved_anywhere` for all of them.

    Raises:
        KeyError: the profile has no such operation; whose fault: the caller's.
    """
    if operation_name is not None and operation_name not in profile.operations:
        raise KeyError(operation_name)
    prefix = f"operation.{operation_name}."
    return tuple(
        key
        for key in unserved_anywhere(profile)
        if not key.startswith("operation.") or (operation_name is not None and key.startswith(prefix))
    )


def unserved_anywhere(profile: Profile) -> tuple[str, ...]:
    """Return all dotted keys of the profile that this release does not serve, in the order of the table."""
    return tuple(key for entry in UNSERVED for key in entry.keys(profile))


def unserved_reason(key: str) -> str:
    """Return the sentence for a key that `unserved` returned.

    Raises:
        KeyError: no entry of the table is about this key; whose fault: the caller's.
    """
    for entry in UNSERVED:
        head, star, tail = entry.pattern.partition("*")
        if key == entry.pattern or (star and key.startswith(head) and key.endswith(tail)):
            return entry.sentence
    raise KeyError(key)
