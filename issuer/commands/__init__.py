"""One function per use case; every surface calls only these (SUR-01)."""

__all__ = [
    "acknowledge",
    "activate",
    "actor_token",
    "admit_host",
    "approvals",
    "approve",
    "audit_access",
    "audit_approvals",
    "audit_archive",
    "audit_changes",
    "audit_checkpoint",
    "audit_denied_then_done",
    "audit_export",
    "audit_hash",
    "audit_issued",
    "audit_key",
    "audit_prove",
    "audit_query",
    "audit_report",
    "audit_snapshot",
    "audit_story",
    "audit_unknowns",
    "audit_unused",
    "clock_accept",
    "commit",
    "decline",
    "dispatch_child",
    "freeze",
    "host_token",
    "invocation_cancel",
    "invocation_end",
    "invocation_list",
    "invocation_open",
    "invocation_show",
    "keys_list",
    "keys_retire",
    "keys_revoke",
    "keys_rotate",
    "ledger_backup",
    "ledger_check",
    "ledger_collect",
    "ledger_restore",
    "ledger_stats",
    "list_effects",
    "obligation_done",
    "reconcile",
    "report",
    "request",
    "request_held",
    "resume",
    "revisions",
    "revoke",
    "show",
    "show_content",
    "sink_list",
    "sink_quarantine",
    "sink_replace",
    "statement",
    "suspend",
    "task_accept_overrun",
    "task_close",
    "task_freeze",
    "task_grant",
    "task_list",
    "task_lower",
    "task_open",
    "task_show",
    "task_thaw",
    "thaw",
    "timeline_of",
    "wait",
    "withdraw",
]

from issuer.commands.approvals import approvals, approve, decline, statement, wait, withdraw
from issuer.commands.archiving import audit_archive
from issuer.commands.asking import request, request_held
from issuer.commands.audit_files import audit_export, audit_snapshot
from issuer.commands.audit_report import audit_report
from issuer.commands.auditing import (
    audit_access,
    audit_changes,
    audit_issued,
    audit_query,
    audit_story,
)
from issuer.commands.backup import ledger_backup, ledger_restore
from issuer.commands.checkpoints import audit_checkpoint, audit_key
from issuer.commands.clock import clock_accept
from issuer.commands.collecting import ledger_collect
from issuer.commands.content import show_content
from issuer.commands.credentials import actor_token, host_token
from issuer.commands.freezing import freeze, resume, suspend, thaw
from issuer.commands.hashing import audit_hash
from issuer.commands.invocations import (
    invocation_cancel,
    invocation_end,
    invocation_list,
    invocation_open,
    invocation_show,
    obligation_done,
)
from issuer.commands.keys import keys_list, keys_retire, keys_revoke, keys_rotate
from issuer.commands.ledger import ledger_check, ledger_stats
from issuer.commands.looking import list_effects, show, timeline_of
from issuer.commands.proving import audit_prove
from issuer.commands.reconciling import acknowledge, reconcile
from issuer.commands.revisions import activate, revisions
from issuer.commands.revoking import revoke
from issuer.commands.sink_views import sink_list
from issuer.commands.sinks import sink_quarantine, sink_replace
from issuer.commands.standing_questions import (
    audit_approvals,
    audit_denied_then_done,
    audit_unknowns,
    audit_unused,
)
from issuer.commands.task_changes import (
    task_accept_overrun,
    task_close,
    task_freeze,
    task_grant,
    task_lower,
    task_thaw,
)
from issuer.commands.task_views import task_list, task_show
from issuer.commands.tasks import task_open
from issuer.commands.using import admit_host, commit, dispatch_child, report
