"""What is in force, and whether the files on disk are that: they are a draft until they are activated (POL-07)."""

from collections.abc import Iterator

from issuer.selfcheck.finding import Finding, Known

_SHOWN_MAX = 8
"""Names of files in one sentence."""


def revision(known: Known) -> Iterator[Finding]:
    """Say which revision is in force, whether its copy is whole, and which files on disk differ from it."""
    from issuer.errors import SetupError
    from issuer.profile import ProfileRefused
    from issuer.revised import in_force
    from issuer.revisions import PREFIX_DIGITS_MIN, load_snapshot, read_draft
    from ledger.errors import LedgerUnavailable

    active = known.the_ledger().read(in_force)
    if active is None:
        says = "No revision was activated yet: the next command takes the files as they lie there."
        yield Finding(check="revision", ok=True, says=says)
        return
    try:
        files = load_snapshot(known.places, active)
    except LedgerUnavailable as fault:
        yield Finding(check="revision", ok=False, says=fault.message, next="Run `issuer activate`.")
        return
    shown = f"The revision {active[:PREFIX_DIGITS_MIN]} is in force"
    try:
        differing = read_draft(known.places).differing(files)
    except (ProfileRefused, SetupError):
        says = f"{shown}; the files on disk are another, and could not be activated."
        yield Finding(check="revision", ok=True, says=says, next="Repair them, and run `issuer activate`.")
        return
    if not differing:
        yield Finding(check="revision", ok=True, says=f"{shown}, and the files on disk are that.")
        return
    names = ", ".join(differing[:_SHOWN_MAX]) + (" and more" if len(differing) > _SHOWN_MAX else "")
    says = f"{shown}; on disk these differ: {names}."
    yield Finding(check="revision", ok=True, says=says, next="Run `issuer activate` to put them in force.")
