"""Host environment: what the command of `issuer dispatch EFFECT -- CMD` finds in its environment, and nothing else.

Decides by a list of what passes, never by one of what does not: a secret has any name (SEC-01). What passes is where
programs are found, where the account is at home, and how it writes language, time and temporary files; then what the
effect is and until when it may be acted on; then the names that the owner let through for this operation. With none of
it can the command act as the issuer: it has no claim, no seal, no key and no credential.

Limits: a command under the issuer's own account can read that account's files, whatever its environment says. Only an
account of its own prevents that. Next: `issuer.operations.host_child` starts the command with it.
"""

from collections.abc import Collection, Mapping
from typing import Final

from issuer.clock import instant_text
from issuer.operations.host_watch import MARK
from ledger.model import EffectId, InstantMs

DEADLINE: Final = "PERMIT_DEADLINE"
"""Name of the variable that says until when the command may act, RFC 3339 in UTC."""

PASSED: Final = frozenset({"HOME", "LANG", "PATH", "TMPDIR", "TZ"})
PASSED_PREFIX: Final = "LC_"

OWN_PREFIXES: Final = ("ISSUER_", "PERMIT_")
"""Names that are the issuer's to set; no owner lets one through."""


def clean_environment(
    given: Mapping[str, str],
    *,
    effect_id: EffectId,
    deadline_ms: InstantMs,
    passes: Collection[str] = (),
) -> dict[str, str]:
    """Return the environment of a host's command.

    Args:
        given: the environment of the process that was asked.
        effect_id: stands in PERMIT_EFFECT_ID, for the service's idempotency key.
        deadline_ms: stands in PERMIT_DEADLINE.
        passes: further names that the owner lets through for the operation.
    """
    kept = {
        name: value
        for name, value in given.items()
        if (name in PASSED or name.startswith(PASSED_PREFIX) or name in passes)
        and not name.startswith(OWN_PREFIXES)
    }
    return {**kept, MARK: str(effect_id), DEADLINE: instant_text(deadline_ms)}
