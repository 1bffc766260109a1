"""What one check says, what it may build upon, and how it says that it could not judge."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from issuer.places import Places

if TYPE_CHECKING:
    from issuer.profile import Profile
    from issuer.sealing import KeyRing
    from ledger.sqlite import SqliteLedger


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found.

    Attributes:
        check: the check's stable name.
        ok: True where it is well, False where it keeps the issuer from working safely, None where it could not be
            judged. What is well and still has a `next` works, and could be better.
        says: one sentence for the person who runs the issuer; never a secret.
        next: what to do, or empty.
    """

    check: str
    ok: bool | None
    says: str
    next: str = ""

    def as_json(self) -> dict[str, object]:
        """Return it as one JSON object."""
        return {"check": self.check, "ok": self.ok, "says": self.says, "next": self.next}


class NotJudgedError(Exception):
    """A check needs what another one could not give; `check` names that one."""

    def __init__(self, check: str) -> None:
        """Name the check that has to be well first."""
        super().__init__(check)
        self.check = check


@dataclass(slots=True, kw_only=True)
class Known:
    """What earlier checks opened for later ones, None where they could not."""

    places: Places
    profile: "Profile | None" = None
    ring: "KeyRing | None" = None
    ledger: "SqliteLedger | None" = None
    engine_is_fit: bool = field(default=False)

    def the_profile(self) -> "Profile":
        """Return the profile; raises `NotJudgedError` where there is none."""
        if self.profile is None:
            raise NotJudgedError("profile")
        return self.profile

    def the_ring(self) -> "KeyRing":
        """Return the key ring; raises `NotJudgedError` where there is none."""
        if self.ring is None:
            raise NotJudgedError("keys")
        return self.ring

    def the_ledger(self) -> "SqliteLedger":
        """Return the ledger; raises `NotJudgedError` where there is none."""
        if self.ledger is None:
            raise NotJudgedError("ledger")
        return self.ledger
