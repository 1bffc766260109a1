"""May these files decide? Load a policy bundle whole, or refuse it whole (POL-04).

The argument, in the order in which it is made; each step sees only what the one before let through.
1. Text: size, characters, nesting, operators, number of policies (`policies.text`); nothing is parsed yet.
2. Syntax: each policy is parsed alone, so that every mistake is reported with its place, not only the first.
3. Shape: our own rules (`policies.lint`), and each `@id` once in the whole bundle.
4. Types: strict validation against the schema of this catalogue, and no policy that can never apply.
5. Assembly: one set keyed by `@id`, taken apart and compared once more (`policies.engine`).

Not here: whether a class has finite bounds (the profile knows, POL-08), and whether groups named here have
members (the directory knows). Next: `policies.decision`.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ledger.canonical import canonical_bytes
from policies import engine
from policies.engine import ParsedPolicy, PolicyHandle, PolicyShape, SchemaHandle
from policies.findings import BundleRefused, Finding
from policies.lint import lint, names, quorum
from policies.schema import Catalogue, cedar_schema
from policies.text import BUNDLE_BYTES_MAX, POLICIES_MAX, PolicyText, guard, split

# Owners split by team or class; more files than this is a mistaken folder.
FILES_MAX = 64
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Policies that passed everything, under one catalogue. Made by `load_bundle` only.

    `digest` covers files, schema and engine version: equal digests decide equally. `policies` is keyed and
    sorted by `@id`. `warnings` are findings that refused nothing.
    """

    catalogue: Catalogue
    schema_text: str = field(repr=False)
    digest: str
    engine: str
    policies: Mapping[str, PolicyShape] = field(repr=False)
    warnings: tuple[Finding, ...] = ()
    schema: SchemaHandle = field(repr=False)
    handle: PolicyHandle = field(repr=False)

    def annotation(self, policy_id: str, name: str) -> str | None:
        """Return the value of a policy's annotation, or None."""
        return self.policies[policy_id].annotations.get(name)

    def named(self, policy_ids: tuple[str, ...], annotation: str) -> tuple[str, ...]:
        """Return the union of the names that these policies carry in one annotation, sorted."""
        values = (self.annotation(policy_id, annotation) for policy_id in policy_ids)
        return tuple(sorted({name for value in values if value is not None for name in names(value)}))

    def names_action(self, action: str) -> bool:
        """Say whether some policy names this action; one about any action whatever names none."""
        return any(action in (shape.actions or ()) for shape in self.policies.values())

    def quorum(self, policy_ids: tuple[str, ...]) -> Mapping[str, int]:
        """Return how many people of each group these policies want, sorted: of each the largest number (APP-03)."""
        wanted: dict[str, int] = {}
        for policy_id in policy_ids:
            value = self.annotation(policy_id, "approvers")
            for group, count in ({} if value is None else quorum(value)).items():
                wanted[group] = max(wanted.get(group, 0), count)
        return MappingProxyType(dict(sorted(wanted.items())))

    def said(self, policy_ids: tuple[str, ...]) -> str | None:
        """Return what these policies say, in the order of their ids, each sentence once; None for nothing."""
        values = (self.annotation(policy_id, "say") for policy_id in policy_ids)
        return " ".join(dict.fromkeys(value for value in values if value is not None)) or None


def load_bundle(files: Mapping[str, str], catalogue: Catalogue) -> Bundle:
    """Return the bundle that these files make under this catalogue.

    Args:
        files: policy text by file name (relative, printable); together at most 256 KiB and 500 policies.
        catalogue: what the policies may name.

    Raises:
        BundleRefused: with every finding of the first step that found an error; warnings never refuse.
        EngineUnfit: the installed engine is not the measured one.
    """
    engine.require_pinned_engine()
    _refuse_if_any(_guard_all(files))
    texts = [policy for file in sorted(files) for policy in split(file, files[file])]
    _refuse_if_any(_guard_count(files, texts))
    return engine.on_big_stack(lambda: _load(files, texts, catalogue))


def _refuse_if_any(findings: list[Finding]) -> None:
    if any(one.severity == "error" for one in findings):
        raise BundleRefused(tuple(findings))


def _guard_all(files: Mapping[str, str]) -> list[Finding]:
    """Step 1, before anything is parsed."""
    if len(files) > FILES_MAX or sum(map(len, files.values())) > BUNDLE_BYTES_MAX:
        message = f"a bundle has at most {FILES_MAX} files and {BUNDLE_BYTES_MAX} bytes"
        return [Finding(file="", line=1, column=1, code="too_large", message=message)]
    found: list[Finding] = []
    for file, text in files.items():
        if not _FILE_NAME.match(file):
            message = "a policy file has a relative name of letters, digits, '.', '_', '-', '/'"
            found.append(Finding(file=ascii(file), line=1, column=1, code="file_name", message=message))
        found.extend(guard(file, text))
    return found


def _guard_count(files: Mapping[str, str], texts: list[PolicyText]) -> list[Finding]:
    if not texts:
        message = "no policy at all: everything would be denied, which is hardly meant"
        return [Finding(file=min(files, default=""), line=1, column=1, code="empty", message=message)]
    if len(texts) > POLICIES_MAX:
        return [texts[POLICIES_MAX].finding("too_many", f"a bundle has at most {POLICIES_MAX} policies")]
    return []


def _load(files: Mapping[str, str], texts: list[PolicyText], catalogue: Catalogue) -> Bundle:
    """Steps 2 to 5, on the big stack."""
    parsed, findings = _parse_all(texts)
    for text, policy in parsed:
        findings.extend(lint(text, policy.shape))
    findings.extend(_duplicates(parsed))
    schema_text = cedar_schema(catalogue)
    schema = engine.parse_schema(schema_text)
    for text, policy in parsed:
        findings.extend(_check_types(text, policy, schema))
    _refuse_if_any(findings)
    handle = engine.assemble([policy for _, policy in parsed], schema)
    shapes = {policy.shape.policy_id: policy.shape for _, policy in parsed}
    version = engine.engine_version()
    return Bundle(
        catalogue=catalogue,
        schema_text=schema_text,
        digest=_digest(files, schema_text, version),
        engine=version,
        policies=MappingProxyType(dict(sorted(shapes.items()))),
        warnings=tuple(sorted(findings)),
        schema=schema,
        handle=handle,
    )


def _parse_all(texts: list[PolicyText]) -> tuple[list[tuple[PolicyText, ParsedPolicy]], list[Finding]]:
    parsed: list[tuple[PolicyText, ParsedPolicy]] = []
    findings: list[Finding] = []
    for text in texts:
        try:
            parsed.append((text, engine.parse_policy(text.text)))
        except engine.Unreadable as trouble:
            findings.append(text.finding("syntax", str(trouble)))
    return parsed, findings


def _duplicates(parsed: list[tuple[PolicyText, ParsedPolicy]]) -> list[Finding]:
    """Cedar allows an `@id` twice; a reason must name one policy, so the bundle does not."""
    places: defaultdict[str, list[PolicyText]] = defaultdict(list)
    for text, policy in parsed:
        if policy.shape.policy_id:
            places[policy.shape.policy_id].append(text)
    return [
        again.finding(
            "id_duplicate", f"@id {policy_id!r} stands already at {first.file}:{first.line}", annotation="id"
        )
        for policy_id, (first, *others) in places.items()
        for again in others
    ]


def _check_types(text: PolicyText, policy: ParsedPolicy, schema: SchemaHandle) -> list[Finding]:
    """Step 4 for one policy."""
    complaints = engine.validate(text.text, schema)
    if complaints:
        return [text.finding("types", complaint) for complaint in complaints]
    if engine.is_impossible(policy, schema):
        return [text.finding("impossible", "by its types this policy can never apply; correct or remove it")]
    return []


def _digest(files: Mapping[str, str], schema_text: str, version: str) -> str:
    """Return the SHA-256 (hex) of a canonical list of everything that decides."""
    body = {
        "v": 1,
        "engine": version,
        "schema": hashlib.sha256(schema_text.encode()).hexdigest(),
        "files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()},
    }
    return hashlib.sha256(canonical_bytes(body)).hexdigest()
