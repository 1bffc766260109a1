"""How a step says no before a transaction could: an exception that carries the refusal to the command's edge.

Inside a transaction a refusal is returned in the verdict. Outside, preparation has many places to stop; each raises
this, and `issuer.commands` turns it into a recorded refusal and an answer in one place.
"""

from ledger.refusals import Refusal, RefusalCode


class RefusedError(Exception):
    """An expected no on the way to a transaction. `say` replaces the code's sentence where one fits better."""

    def __init__(
        self, code: RefusalCode, *, field: str | None = None, level: str | None = None, say: str = ""
    ) -> None:
        """Carry the refusal."""
        super().__init__(str(code))
        self.refusal = Refusal(code=code, field=field, level=level)
        self.say = say
