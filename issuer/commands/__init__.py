"""One function per use case; every surface calls only these (SUR-01)."""

__all__ = [
    "admit_host",
    "commit",
    "dispatch_child",
    "ledger_check",
    "ledger_stats",
    "list_effects",
    "report",
    "request",
    "request_held",
    "show",
    "task_close",
    "task_grant",
    "task_list",
    "task_open",
    "task_show",
    "timeline_of",
]

from issuer.commands.asking import request, request_held
from issuer.commands.ledger import ledger_check, ledger_stats
from issuer.commands.looking import list_effects, show, timeline_of
from issuer.commands.tasks import task_close, task_grant, task_list, task_open, task_show
from issuer.commands.using import admit_host, commit, dispatch_child, report
