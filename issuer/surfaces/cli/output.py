"""How an answer is shown: one JSON object for machines, a few lines for people (SUR-03).

Data goes to standard output, and with `--json` exactly one object, for a no as well. Colour is used on a terminal
only, and not where NO_COLOR is set or the terminal is dumb. Money is shown as `900.00 EUR`; JSON keeps whole units.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from issuer.amounts import amount_text
from issuer.wire.answers import Answer
from issuer.wire.codes import CODES, Exit


def cost_text(cost: Mapping[str, int]) -> str:
    """Return a cost per unit for people."""
    return ", ".join(amount_text(unit, amount) for unit, amount in cost.items())


def wants_colour() -> bool:
    """Say whether standard output is a terminal that shows colour."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty()


def plain_text(text: str) -> str:
    """Return a text for people on one line: what cannot be seen is shown as an escape.

    Values may hold line ends and marks that reorder text, which would let one line pass for another.
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _headline(answer: Answer) -> str:
    colours = {Exit.DONE: "green", Exit.AWAITING_APPROVAL: "yellow", Exit.UNKNOWN: "yellow"}
    word = answer.code
    return click.style(word, fg=colours.get(answer.exit, "red"), bold=True) if wants_colour() else word


def _facts(answer: Answer) -> list[tuple[str, str]]:
    facts = [
        ("effect", answer.effect),
        ("state", answer.state),
        ("operation", answer.operation),
        ("resource", answer.resource),
        ("cost", None if answer.cost is None else cost_text(answer.cost)),
        ("expires", answer.expires),
    ]
    return [(name, value) for name, value in facts if value is not None]


_TOLD_ELSEWHERE: Final = {
    *("timeline", "stats", "blocked", "revisions", "changes", "too_late_count"),
    *("rows", "unknowns", "unused", "denied_then_done", "answers", "cursor", "more", "totals", "recorded"),
    *("text", "not_recorded_yet", "population", "numbers", "note", "verification"),
}
"""What stands in lines for people, or in the sentence, already."""


def _more_lines(answer: Answer) -> list[str]:
    lines: list[str] = []
    for name, value in answer.more.items():
        if name == "lines" and isinstance(value, list):
            lines += [plain_text(str(line)) for line in value]
        elif name in _TOLD_ELSEWHERE:
            continue
        elif name == "attempt" and isinstance(value, dict):
            lines.append(plain_text(f"  attempt: {value['kind']}, {value['seen']} ({value['reason']})"))
        elif name in _ROWS and isinstance(value, list):
            lines += [line for row in value for line in _ROWS[name](row)]
        elif name == "effects" and isinstance(value, list) and answer.code == "revoked_now":
            lines += [f"  void: {plain_text(str(effect))}" for effect in value]
        elif name in _LISTS and isinstance(value, list):
            lines += [line for row in value for line in _LISTS[name](row)] or ["  none"]
        elif name == "task" and isinstance(value, dict):
            lines += [*_task_lines(value), *_scope_lines(value["scope"])]
        elif isinstance(value, dict | list):
            lines += _nested_lines(name, value, "  ")
        else:
            lines.append(f"  {name}: {plain_text(str(value))}")
    return lines


def _nested_lines(name: str, value: object, indent: str) -> list[str]:
    """Return a record as lines: a member each, and a row each of what is a list; what is not there is left out."""
    rows = [value] if isinstance(value, dict) else value
    if not value or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        return [] if value in (None, [], {}) else [f"{indent}{name}: {plain_text(str(shown))}"]
    lines = []
    for row in rows:
        if all(not isinstance(member, dict | list) for member in row.values()):
            shown = ", ".join(f"{key} {member}" for key, member in row.items() if member not in (None, ""))
            lines.append(f"{indent}{name}: {plain_text(shown)}")
            continue
        lines.append(f"{indent}{name}:")
        for key, member in row.items():
            lines += _nested_lines(key, member, indent + "  ")
    return lines


def _finding_lines(row: Mapping[str, object]) -> list[str]:
    ok, next_step = row["ok"], plain_text(str(row["next"]))
    word = "unsure" if ok is None else "PROBLEM" if not ok else "hint" if next_step else "ok"
    where = f"{plain_text(str(row['where']))}: " if row.get("where") else ""
    lines = [f"  {word:<7}  {row['check']}: {where}{plain_text(str(row['says']))}"]
    return [*lines, f"{'':>11}-> {next_step}"] if next_step else lines


def _key_lines(row: Mapping[str, Any]) -> list[str]:
    """Return one key of the issuer's ring; never its bytes, which no answer has."""
    since = f" since {row['since']}" if row["since"] else ""
    permits = f"{row['permits']} live permit{'' if row['permits'] == 1 else 's'}"
    counts = "; counts repetition" if row["counts"] else ""
    return [f"  {row['key']}  {row['state']}{since}: {row['serves']}; {permits}{counts}"]


def _sink_lines(row: Mapping[str, Any]) -> list[str]:
    """Return one sink: how it is, how far, and where."""
    words = [row["kind"], row["class"], "required" if row["required"] else None]
    far = "" if row["reached"] is None else f"; has {row['reached']}, lacks {row['behind']}"
    why = f" ({row['reason']})" if row["reason"] else ""
    since = f" since {row['failing_since']}" if row["failing_since"] else ""
    kept = "".join(f"; not given {first} to {last}" for first, last in row["quarantined"])
    head = f"  {row['sink']}  {row['state']}{why}{since}: {', '.join(filter(None, words))}{far}{kept}"
    place = [f"      {row['location']}{' since ' + row['since'] if row['since'] else ''}"]
    return [plain_text(line) for line in [head, *(place if row["location"] else [])]]


_ROWS: Final[Mapping[str, Callable[[Mapping[str, Any]], list[str]]]] = {
    "findings": _finding_lines,
    "keys": _key_lines,
    "sinks": _sink_lines,
}
"""What is told a row at a time, in lines of its own kind."""


def _effect_lines(row: Mapping[str, object]) -> list[str]:
    lines = [_effect_line(row)]
    duties = row.get("obligations")
    if isinstance(duties, dict):
        lines += [f"      obligation {plain_text(name)}: {state}" for name, state in duties.items()]
    if "last_attempt" in row:
        lines += [f"      {plain_text(line)}" for line in _unresolved_lines(row)]
    return lines


_RESOURCE_CHARS: Final = 40
"""Characters of a resource that stand on the line of its effect."""

_PIECE_CHARS: Final = 60


def _waiting_lines(row: Mapping[str, Any]) -> list[str]:
    """Return what waits for people: what it is, for how much, who asks for whom, who is asked, and until when."""
    wanted = ", ".join(f"{count} of {group}" for group, count in row["approvers"].items())
    given = ", ".join(one["person"] for one in row["approved"]) or "nobody yet"
    resource, cost = str(row["resource"]), cost_text(row["cost"])
    # A long one would be broken by the terminal, and its end look like a line of ours.
    is_short = len(resource) <= _RESOURCE_CHARS
    pieces = [resource[at : at + _PIECE_CHARS] for at in range(0, len(resource), _PIECE_CHARS)]
    return [
        plain_text(line)
        for line in (
            f"  {row['effect']}  {row['operation']}  {resource if is_short else 'on'}  {cost}",
            *(f"        | {piece}" for piece in ([] if is_short else pieces)),
            f"      asked by {row['actor']} for {row['subject']}, in {row['task']}, as {row['caller']}",
            f"      it takes {wanted}; yes from {given}; until {row['until']}",
        )
    ]


def _unresolved_lines(row: Mapping[str, Any]) -> list[str]:
    """Return what an unknown effect holds and where, since when, for whom, what can be tried, and what was."""
    levels = row["charged"] or row["held"]
    amounts = ", ".join(f"{amount_text(one['unit'], one['amount'])} at {one['task']}" for one in levels)
    last, number = row["last_attempt"], row["attempts"]
    tried = "no attempt yet"
    if last is not None:
        seen = f"{last['seen']} ({last['reason']})" if last["seen"] else "no end on record"
        tried = f"{number} attempt{'' if number == 1 else 's'}, the last: {last['kind']}, {seen}"
    return [
        f"since {row['since']}, in {row['task']}, for {row['subject']}, by {row['actor']}",
        f"{'charged' if row['charged'] else 'holds'} {amounts or 'nothing'}",
        f"possible: {' or '.join(row['inspection'])}; {tried}",
    ]


def _effect_line(row: Mapping[str, object]) -> str:
    cost = row["cost"]
    shown = cost_text(cost) if isinstance(cost, dict) else ""
    resource = plain_text(str(row["resource"]))
    return (
        f"  {row['effect']}  {row['state']!s:<18} {row['operation']}  {resource}  {shown}  {row['prepared']}"
    )


def _task_lines(row: Mapping[str, object]) -> list[str]:
    actors = row["actors"]
    named = ", ".join(str(actor) for actor in actors) if isinstance(actors, list) else ""
    below = f" below {row['parent']}" if row["parent"] else ""
    state = f"{row['state']}{_stopped_text(row)}"
    lines = [f"  {row['name']}{below}: {state}, for {row['subject']}, by {named}, until {row['expires']}"]
    budget = row["budget"]
    if isinstance(budget, dict):
        lines += [f"    {_budget_text(unit, line)}" for unit, line in budget.items()]
    return lines


def _stopped_text(row: Mapping[str, object]) -> str:
    """Return why a task that is open itself admits nothing: it has expired, or a task above it is stopped."""
    stopped = row["stopped"]
    if not isinstance(stopped, dict) or row["state"] != "open":
        return ""
    return f", but {stopped['level']} is {str(stopped['code']).removeprefix('task_')}"


def _scope_lines(scope: object) -> list[str]:
    """Return what a task names, one line a name, with what is used and left of it."""
    lines: list[str] = []
    for kind, slots in scope.items() if isinstance(scope, dict) else ():
        for name, line in slots.items() if isinstance(slots, dict) else ():
            used = "inherit" if line["used"] is None else f"{line['used']} of {line['count']} used"
            left = "" if line["left"] is None else f", {line['left']} left at {line['level']}"
            lines.append(f"    {kind} {plain_text(name)}: {used}{left}")
    return lines


def _budget_text(unit: str, line: Mapping[str, object]) -> str:
    def shown(name: str) -> str:
        value = line[name]
        return amount_text(unit, value) if isinstance(value, int) else str(value)

    blocks = [
        f", {words} {shown(name)}: blocked"
        for name, words in (("overrun", "overrun"), ("above", "above the ceiling by"))
        if line[name]
    ]
    used = f"settled {shown('settled')}, held {shown('reserved')}"
    return f"{unit}: ceiling {shown('ceiling')}, {used}{''.join(blocks)}"


_LISTS: Final[Mapping[str, Callable[[Mapping[str, Any]], list[str]]]] = {
    "effects": _effect_lines,
    "waiting": _waiting_lines,
    "tasks": _task_lines,
}
"""How the rows of each list are shown; an empty one says so."""


def render(answer: Answer) -> str:
    """Return an answer as lines for people."""
    whose = ", ".join(word for word in (answer.issuer, answer.mode) if word)
    lines = [f"{_headline(answer)}  ({whose})"]
    lines += [f"  {name}: {plain_text(value)}" for name, value in _facts(answer)]
    lines += _more_lines(answer)
    lines.append(answer.say or CODES[answer.code].say)
    return "\n".join(lines)


def show(answer: Answer, *, as_json: bool) -> None:
    """Print an answer on standard output."""
    if as_json:
        click.echo(json.dumps(answer.as_json()))
    else:
        click.echo(render(answer))


def show_text(answer: Answer, text: str) -> None:
    """Print what an answer has as one text, byte for byte; what else it says goes to standard error.

    On a terminal what it would act on, or hide, is escaped as in JSON.
    """
    if sys.stdout.isatty():
        text = "".join(char if char.isprintable() or char in "\r\n" else _escaped(char) for char in text)
    click.echo(text, nl=False, color=True)  # or it would take out what looks like colour
    if answer.more.get("more"):
        click.echo(f"more: go on with --after {answer.more['cursor']}", err=True)
    if answer.say not in {"", CODES[answer.code].say}:
        click.echo(plain_text(answer.say), err=True)


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if char != "\x7f" else "\\u007f"


def show_trouble(code: str, message: str, *, as_json: bool) -> Exit:
    """Print what kept a command from reaching an issuer at all, and return its exit code."""
    answer = Answer(issuer="", code=code, mode="ordinary", say=message)
    if as_json:
        show(answer, as_json=True)
    else:
        shown = "\n".join(plain_text(line) for line in message.split("\n"))
        click.echo(f"{code}: {shown}", err=True)
    return answer.exit
