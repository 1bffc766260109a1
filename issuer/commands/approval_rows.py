"""How a question to people stands, as `show` and `approvals` tell it (EFF-09, APP-03)."""

from issuer.clock import instant_text
from ledger.model import Effect
from ledger.port import View


def approval_record(view: View, effect: Effect) -> dict[str, object]:
    """Return whom an effect waits or waited for, and who has said yes; empty where nobody was asked."""
    wait = view.approval_wait(effect.effect_id)
    if wait is None:
        return {}
    return {
        "approvers": dict(wait.approvers),
        "approved": [
            {"person": given.person, "key": given.key, "at": instant_text(given.at_ms)}
            for given in view.approvals(effect.effect_id)
        ],
        "asked": instant_text(wait.asked_ms),
        "statement": wait.statement_digest.hex(),
    }
