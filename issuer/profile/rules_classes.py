"""Rules of action classes: is automatic issuance finitely bounded, and are the bounds possible together?

Rules (POL-03, POL-08): a class is automatic unless it says otherwise, and an automatic class declares what
one effect may cost, how many permits a task and a root task get, and how long a permit lives; the model
demands the lifetime of every class. Bounds a day are optional. A bound that another one makes unreachable
is refused, because an owner who wrote it believes in it. Pure. `issuer/profile/rules_operations.py` comes
next.
"""

from collections.abc import Iterator

from issuer.profile.draft import Draft
from issuer.profile.fields import PERMITS
from issuer.profile.findings import FindingCode, KeyPath, Problem
from issuer.profile.models import ActionClass

__all__ = ["class_problems"]


def class_problems(draft: Draft) -> Iterator[Problem]:
    """Yield every problem of every class."""
    for name, action_class in draft.classes.items():
        path: KeyPath = ("class", name)
        if action_class.automatic:
            yield from _missing_bounds(path, action_class)
        yield from _impossible_bounds(path, action_class)


def _missing_bounds(path: KeyPath, action_class: ActionClass) -> Iterator[Problem]:
    bounds = (
        ("each", bool(action_class.each), "what one effect may cost: each = { UNIT = n }"),
        (
            "per_task",
            action_class.per_task is not None,
            "how many permits a task gets: per_task = { permits = n }",
        ),
        (
            "per_root",
            action_class.per_root is not None,
            "how many permits a root task gets: per_root = { permits = n }",
        ),
    )
    for key, is_given, what in bounds:
        if not is_given:
            message = f"This class is automatic and does not say {what}. Or set automatic = false."
            yield Problem(path=(*path, key), code=FindingCode.MISSING_BOUND, message=message)


def _impossible_bounds(path: KeyPath, action_class: ActionClass) -> Iterator[Problem]:
    per_task, per_root = action_class.per_task, action_class.per_root
    if per_task is not None and per_root is not None and per_task.permits > per_root.permits:
        message = (
            f"A task may not have more permits ({per_task.permits}) than its root task ({per_root.permits})."
        )
        yield Problem(path=(*path, "per_task", PERMITS), code=FindingCode.IMPOSSIBLE_BOUND, message=message)
    if action_class.permits_per_day == 0:
        message = "Zero permits a day closes the class; write automatic = false instead."
        yield Problem(path=(*path, "per_day", PERMITS), code=FindingCode.IMPOSSIBLE_BOUND, message=message)
    for unit, per_day in action_class.units_per_day.items():
        each = action_class.each.get(unit)
        if each is None and action_class.automatic and not action_class.each:
            continue  # The missing `each` has its own finding.
        if each is None:
            message = f'The day bounds "{unit}", but `each` does not name this unit.'
            yield Problem(
                path=(*path, "per_day", unit),
                code=FindingCode.IMPOSSIBLE_BOUND,
                message=message,
                wanted=unit,
                candidates=tuple(action_class.each),
            )
        elif each > per_day:
            message = f"One effect may cost {each}, which is more than the whole day's {per_day}."
            yield Problem(path=(*path, "each", unit), code=FindingCode.IMPOSSIBLE_BOUND, message=message)
