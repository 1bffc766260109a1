"""The reviewer's seat of the Python API: what is asked of the trail, each look on record first (AUD-06, AUD-09).

Each method takes `form`: `table` gives rows and lines, `jsonl`, `csv` and `otlp-json` one text. What is asked for is
given by name, as the attributes of `issuer.commands.AuditAsk`. Next: `issuer.api`.
"""

from pathlib import Path
from typing import Unpack

from issuer import commands
from issuer.commands.audit_asks import LIMIT, Asked, AuditAsk
from issuer.commands.audit_files import Progress, no_progress
from issuer.commands.standing_questions import WITHIN_MS
from issuer.handle import Handle
from issuer.wire import Answer


class AuditHandle(Handle):
    """The questions of a reviewer, as methods."""

    def timeline(
        self,
        effect: str | None = None,
        *,
        task: str | None = None,
        invocation: str | None = None,
        form: str = "table",
        since: str | None = None,
        until: str | None = None,
        limit: int = LIMIT,
        after: int | str = 0,
        newest: bool = False,
    ) -> Answer:
        """Show the whole story of one effect, of a task with all that was done in it, or of an invocation.

        The rest is for the latter two; an effect's story is shown as a whole.
        """
        if effect is not None:
            return self._done("audit-timeline", lambda visit: commands.timeline_of(visit, effect))
        ask = AuditAsk(since=since, until=until, limit=limit, after=after, newest=newest)
        return self._done(
            "audit-story",
            lambda visit: commands.audit_story(visit, ask, form, task=task, invocation=invocation),
        )

    def audit_query(self, *, form: str = "table", **asked: Unpack[Asked]) -> Answer:
        """Show the spans that are asked for; `cursor` in the answer, given as `after`, asks for the next page."""
        ask = AuditAsk(**asked)
        return self._done("audit-query", lambda visit: commands.audit_query(visit, ask, form))

    def audit_issued(self, *, form: str = "table", **asked: Unpack[Asked]) -> Answer:
        """Show what policies permitted by themselves; with `policy`, what that one did."""
        ask = AuditAsk(**asked)
        return self._done("audit-issued", lambda visit: commands.audit_issued(visit, ask, form))

    def audit_unknowns(self, *, form: str = "table", limit: int = LIMIT, after: int | str = 0) -> Answer:
        """Show every effect whose outcome is unknown, and the money that they hold; nothing else selects."""
        ask = AuditAsk(limit=limit, after=after)
        return self._done("audit-unknowns", lambda visit: commands.audit_unknowns(visit, ask, form))

    def audit_unused(self, *, form: str = "table", **asked: Unpack[Asked]) -> Answer:
        """Show permits that were issued and never used."""
        ask = AuditAsk(**asked)
        return self._done("audit-unused", lambda visit: commands.audit_unused(visit, ask, form))

    def audit_denied_then_done(
        self, *, within_ms: int = WITHIN_MS, form: str = "table", **asked: Unpack[Asked]
    ) -> Answer:
        """Show what was denied or refused, and admitted or done within `within_ms` milliseconds after."""
        ask = AuditAsk(**asked)
        return self._done(
            "audit-denied-then-done",
            lambda visit: commands.audit_denied_then_done(visit, ask, form, within_ms=within_ms),
        )

    def audit_approvals(self, *, form: str = "table", **asked: Unpack[Asked]) -> Answer:
        """Show what people answered: yes, no, too late, and attempts to say yes to what is their own."""
        ask = AuditAsk(**asked)
        return self._done("audit-approvals", lambda visit: commands.audit_approvals(visit, ask, form))

    def audit_access(self, *, form: str = "table", **asked: Unpack[Asked]) -> Answer:
        """Show who looked at what; looks that are not in the ledger yet stand in `waiting`."""
        ask = AuditAsk(**asked)
        return self._done("audit-access", lambda visit: commands.audit_access(visit, ask, form))

    def audit_changes(self, *, form: str = "table", **asked: Unpack[Asked]) -> Answer:
        """List every change of authority, oldest first (AUD-09)."""
        ask = AuditAsk(**asked)
        return self._done("audit-changes", lambda visit: commands.audit_changes(visit, ask, form))

    def audit_report(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        out: str | Path | None = None,
        form: str = "table",
        progress: Progress = no_progress,
    ) -> Answer:
        """Report the population of a period, signed; with `out` into that new file, a note of its own (AUD-09)."""
        ask, file = AuditAsk(since=since, until=until), None if out is None else Path(out)
        return self._done(
            "audit-report",
            lambda visit: commands.audit_report(visit, ask, form, out=file, progress=progress),
        )

    def audit_export(
        self,
        out: str | Path,
        *,
        form: str = "jsonl",
        progress: Progress = no_progress,
        **asked: Unpack[Asked],
    ) -> Answer:
        """Write the whole trail, or the spans that are asked for, to the new file `out`; that is on record first."""
        ask, file = AuditAsk(**asked), Path(out)
        return self._done(
            "audit-export", lambda visit: commands.audit_export(visit, file, ask, form, progress=progress)
        )

    def audit_snapshot(self, out: str | Path, *, progress: Progress = no_progress) -> Answer:
        """Write a database of all spans, for SQL of one's own, to the new file `out`; that is on record first."""
        file = Path(out)
        return self._done(
            "audit-snapshot", lambda visit: commands.audit_snapshot(visit, file, progress=progress)
        )
