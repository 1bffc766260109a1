"""Which rules of the specification are served by tests, which are open, and where the three sources disagree.

The pages in docs/spec say which rules exist, `pytest.mark.spec` says which tests hold them, and
docs/spec/open.toml says what is not served yet. A rule is *served* when a test carries its id, *open* when
open.toml gives a reason, and *partly* served when both are so. Everything else is a finding, and a finding
fails `make check`: a rule nobody speaks for, a mark or a line for a rule that does not exist, a page that
lost a rule, an entry that claims a served part without a test.

Tests are read, not run, so the report needs no package of ours and cannot be silenced by a failing import.
A test that is skipped without a condition or expected to fail holds nothing and is not counted. Whether the
tests that are counted pass is what `make test` says.
"""

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

RULE_ID = re.compile(r"[A-Z]{3}-\d{2}")
HEADING = re.compile(r"^#{1,6}\s+([A-Z]{3}-\d{2})\b", re.MULTILINE)
PARTLY = "Partly:"
# Marks under which a test proves nothing: it does not run, or its failure is what is expected.
EMPTY_MARKS = frozenset({"skip", "xfail"})
# Names of tests shown per rule; the count stands beside them, so nothing is hidden.
NAMES_SHOWN_MAX = 2

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """The rules as the pages state them: `rules` in page order, with every repetition kept."""

    rules: tuple[str, ...]
    family_sizes: Mapping[str, int]
    open_reasons: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One line per rule, and the findings that make the check fail."""

    lines: tuple[str, ...]
    findings: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Marks:
    """What the test files carry: rule id to test names, and marks that cannot be read."""

    tests_by_rule: dict[str, list[str]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def add(self, rule: str, test: str) -> None:
        """Note that `test` carries `rule`; a table of parameters that repeats an id counts once."""
        names = self.tests_by_rule.setdefault(rule, [])
        if test not in names:
            names.append(test)


def read_specification(folder: Path) -> Specification:
    """Read the pages and open.toml in `folder`; a missing file raises, because no pages are no promise."""
    rules: list[str] = []
    for page in sorted(folder.glob("*.md")):
        rules += HEADING.findall(page.read_text(encoding="utf-8"))
    document = tomllib.loads((folder / "open.toml").read_text(encoding="utf-8"))
    return Specification(
        rules=tuple(rules),
        family_sizes=document["families"],
        open_reasons=document["open"],
    )


def page_findings(specification: Specification) -> Iterator[str]:
    """Compare the pages with the family sizes: each family holds 01 to its size, each rule once."""
    expected = {
        f"{family}-{number:02d}"
        for family, size in specification.family_sizes.items()
        for number in range(1, size + 1)
    }
    counted = Counter(specification.rules)
    for rule in sorted(expected - counted.keys()):
        yield f"{rule}: no page states it, but [families] in open.toml counts it"
    for rule in sorted(counted.keys() - expected):
        yield f"{rule}: a page states it, but [families] in open.toml does not count it"
    for rule, times in sorted(counted.items()):
        if times > 1:
            yield f"{rule}: stated {times} times"


def _called_mark(node: ast.expr) -> str | None:
    """Return the name in `pytest.mark.<name>` or `mark.<name>`, called or bare; None for anything else."""
    target = node.func if isinstance(node, ast.Call) else node
    if not isinstance(target, ast.Attribute):
        return None
    owner = target.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", None)
    return target.attr if name == "mark" else None


def _rules_of(nodes: Sequence[ast.expr], place: str, marks: Marks) -> list[str]:
    """Return the ids of all spec marks at or below `nodes`; unreadable ones become findings."""
    rules: list[str] = []
    for call in (inner for node in nodes for inner in ast.walk(node)):
        if not isinstance(call, ast.Call) or _called_mark(call) != "spec":
            continue
        values = [argument.value if isinstance(argument, ast.Constant) else None for argument in call.args]
        readable = [value for value in values if isinstance(value, str) and RULE_ID.fullmatch(value)]
        if not readable or len(readable) != len(values) or call.keywords:
            marks.findings.append(
                f"{place}:{call.lineno}: spec takes rule ids such as ADM-03, as plain strings"
            )
        rules += readable
    return rules


def _module_marks(body: Sequence[ast.stmt]) -> list[ast.expr]:
    """Return the values assigned to `pytestmark` in a module or class body."""
    values: list[ast.expr] = []
    for statement in body:
        if isinstance(statement, ast.Assign):
            names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
            if "pytestmark" in names:
                value = statement.value
                values += value.elts if isinstance(value, ast.List) else [value]
    return values


def collect_marks(path: Path, place: str, marks: Marks) -> None:
    """Add what the test file at `path` carries to `marks`; `place` is how findings name the file."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=place)
    _collect_body(tree.body, (), place, marks)


def _collect_body(
    body: Sequence[ast.stmt], inherited: tuple[ast.expr, ...], place: str, marks: Marks
) -> None:
    """Walk one module or class body; marks of the body and of its owner hold for each test in it."""
    around = (*inherited, *_module_marks(body))
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            # A state machine of hypothesis is collected through a `TestCase` attribute, so any class counts.
            _collect_body(statement.body, (*around, *statement.decorator_list), place, marks)
        elif isinstance(statement, FunctionNode) and statement.name.startswith("test"):
            decorators = (*around, *statement.decorator_list)
            rules = _rules_of(decorators, place, marks)
            if EMPTY_MARKS.isdisjoint(_called_mark(decorator) or "" for decorator in decorators):
                for rule in rules:
                    marks.add(rule, statement.name)
        elif isinstance(statement, FunctionNode) and _rules_of(statement.decorator_list, place, marks):
            marks.findings.append(
                f"{place}:{statement.lineno}: {statement.name} is no test, but carries a rule"
            )


def build_report(specification: Specification, marks: Marks) -> Report:
    """Bring pages, marks and open.toml together; every rule gets one line, every disagreement a finding."""
    findings = [*page_findings(specification), *marks.findings]
    known = set(specification.rules)
    findings += [
        f"{rule}: carried by {marks.tests_by_rule[rule][0]}, but no page states it"
        for rule in sorted(marks.tests_by_rule.keys() - known)
    ]
    findings += [
        f"{rule}: listed in open.toml, but no page states it"
        for rule in sorted(specification.open_reasons.keys() - known)
    ]
    lines = []
    for rule in dict.fromkeys(specification.rules):
        tests = marks.tests_by_rule.get(rule, [])
        reason = specification.open_reasons.get(rule, "").strip()
        lines.append(_line(rule, tests, reason))
        if rule in specification.open_reasons and not reason:
            findings.append(f"{rule}: open.toml gives no reason")
        elif not tests and not reason:
            findings.append(f"{rule}: no test carries it, and open.toml does not list it")
        elif not tests and reason.startswith(PARTLY):
            findings.append(f"{rule}: open.toml says it is served in part, but no test carries it")
    return Report(lines=tuple(lines), findings=tuple(findings))


def _line(rule: str, tests: Sequence[str], reason: str) -> str:
    """Show one rule: its state, the number of tests, and their first names or what is missing."""
    state = "partly" if tests and reason else "served" if tests else "open" if reason else "NOBODY"
    shown = reason or ", ".join(tests[:NAMES_SHOWN_MAX]) + (", ..." if len(tests) > NAMES_SHOWN_MAX else "")
    return f"{rule}  {state:<6}  {len(tests):>3}  {shown}".rstrip()


def main() -> int:
    """Print the table and the findings; 0 when there is no finding, else 1."""
    marks = Marks()
    for path in sorted((REPOSITORY / "tests").rglob("*.py")):
        collect_marks(path, path.relative_to(REPOSITORY).as_posix(), marks)
    report = build_report(read_specification(REPOSITORY / "docs" / "spec"), marks)
    states = Counter(line.split()[1] for line in report.lines)
    total = ", ".join(f"{states[state]} {state}" for state in ("served", "partly", "open"))
    print("\n".join(("rule    state   tests", *report.lines, f"{len(report.lines)} rules: {total}")))  # noqa: T201 -- the table is the product
    for finding in report.findings:
        print(f"spec: {finding}", file=sys.stderr)  # noqa: T201 -- findings go where make shows them
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
