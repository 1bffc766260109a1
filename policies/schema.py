"""Which words may a policy of this owner use? The Cedar schema, generated from the owner's catalogue.

Rules (POL-02): each resource type is closed and typed; every attribute is marked as said by the actor or
known to the issuer; classes and operations are closed vocabularies (enum entities), so a typing error in a
policy is found at load. The two tiers are actions in the group `permit` (POL-01), and the acts of people are actions
of their own: an act on one effect asks about an `Effect`, any other about the one `Issuer`. Costs are whole numbers
of the catalogue's units, never decimals (EFF-04). The order is the catalogue's: equal catalogues give equal
text in every process.

Not here: the values (`policies.facts`), and whether a policy fits the schema (`policies.bundle`).
Next: `policies.facts` fills exactly this shape.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from ledger.canonical import WHOLE_MAX

AttributeKind = Literal["string", "int", "bool"]

# Highest count a JSON number carries exactly everywhere (RFC 8785, I-JSON); also "no bound declared".
UNBOUNDED: Final = WHOLE_MAX
# A schema is parsed once per activation; these only keep a generated profile from exhausting the parser.
NAMES_MAX = 200
ATTRIBUTES_MAX = 100

# A type name starts with a capital, so no Cedar keyword (all lower case) and no `__cedar` can collide.
_TYPE_NAME = re.compile(r"[A-Z][A-Za-z0-9_]{0,63}\Z")
_ATTRIBUTE_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_ENUM_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}\Z")
_CEDAR_TYPES: dict[AttributeKind, str] = {"string": "String", "int": "Long", "bool": "Bool"}
# The schema's own names, and names that Cedar reserves or would shadow (Cedar language 4.5).
_OWN_TYPES = (
    *("Group", "Person", "Actor", "Task", "Class", "Operation", "Request", "Action"),
    *("Role", "Host", "Issuer", "Effect"),
)
_OWN_RECORDS = ("Units", "Earlier", "Usage", "Limits", "Clock", "Ask")
# `Record` and `Entity` are reserved for JSON type descriptions only, and are good names for a resource.
_CEDAR_NAMES = ("Bool", "Boolean", "Long", "String", "Set", "Extension")
_RESERVED_TYPES = frozenset({*_OWN_TYPES, *_OWN_RECORDS, *_CEDAR_NAMES})

EARLIER_FIELDS = (
    "same_payload_pending",
    "same_payload_unresolved",
    "same_payload_succeeded",
    "same_resource_pending",
    "same_resource_unresolved",
    "same_resource_succeeded",
)
USAGE_FIELDS = ("task_permits", "root_permits", "day_permits")
LIMITS_FIELDS = (*USAGE_FIELDS, "lifetime_s")
CLOCK_FIELDS = ("minute_of_day", "weekday")

ROLES = ("owner", "host", "approver", "reviewer", "operator")
"""The roles that a profile gives to people; the profile's own list is compared with this one by a test."""

ISSUER_TYPE, ISSUER_ID, EFFECT_TYPE = "Issuer", "issuer", "Effect"
ACTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "openTask": (ISSUER_TYPE,),
        "observe": (ISSUER_TYPE, EFFECT_TYPE),
        "reconcile": (EFFECT_TYPE,),
        "acknowledge": (EFFECT_TYPE,),
        "revoke": (ISSUER_TYPE,),
        "activate": (ISSUER_TYPE,),
    },
)
"""What policies are asked about a person beside `approve`, and on which types (POL-01)."""


class CatalogueRefused(ValueError):  # noqa: N818 - the project's word for this is "refused", not "error"
    """The owner's profile names something that cannot stand in a policy. Whose fault: the owner's."""


def _require(holds: bool, message: str) -> None:  # noqa: FBT001 - the condition is the point of the call
    if not holds:
        raise CatalogueRefused(message)


def _require_names(what: str, names: tuple[str, ...], pattern: re.Pattern[str]) -> None:
    _require(len(names) <= NAMES_MAX, f"more than {NAMES_MAX} {what} names")
    _require(len(set(names)) == len(names), f"a {what} name stands twice")
    for name in names:
        _require(pattern.match(name) is not None, f"{name!r} is not a {what} name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One typed attribute of a resource; `said` means that its value is the actor's word."""

    name: str
    kind: AttributeKind
    said: bool

    def __post_init__(self) -> None:
        """Refuse a name outside `[a-z][a-z0-9_]*` and a kind outside the three."""
        _require(_ATTRIBUTE_NAME.match(self.name) is not None, f"{self.name!r} is not an attribute name")
        _require(self.kind in _CEDAR_TYPES, f"{self.kind!r} is not an attribute kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """One owner-named kind of object, with everything a policy may ask about it."""

    name: str
    attributes: tuple[Attribute, ...]

    def __post_init__(self) -> None:
        """Refuse a reserved or malformed name and attributes named twice."""
        _require(_TYPE_NAME.match(self.name) is not None, f"{self.name!r} is not a resource type name")
        _require(self.name not in _RESERVED_TYPES, f"{self.name!r} is the issuer's own or Cedar's")
        _require(
            len(self.attributes) <= ATTRIBUTES_MAX, f"{self.name}: more than {ATTRIBUTES_MAX} attributes"
        )
        names = tuple(attribute.name for attribute in self.attributes)
        _require(len(set(names)) == len(names), f"{self.name}: an attribute stands twice")

    def kinds(self) -> dict[str, AttributeKind]:
        """Return the kind of each attribute by name."""
        return {attribute.name: attribute.kind for attribute in self.attributes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Everything an owner's policies may name: classes, operations, cost units and resource types."""

    classes: tuple[str, ...]
    operations: tuple[str, ...]
    units: tuple[str, ...]
    resource_types: tuple[ResourceType, ...]
    _by_name: dict[str, ResourceType] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse empty vocabularies (units may be none), malformed names and names that stand twice."""
        _require_names("class", self.classes, _ENUM_NAME)
        _require_names("operation", self.operations, _ENUM_NAME)
        _require_names("unit", self.units, _ENUM_NAME)
        _require(bool(self.classes), "a catalogue needs a class")
        _require(bool(self.operations), "a catalogue needs an operation")
        _require(bool(self.resource_types), "a catalogue needs a resource type")
        _require_names("resource type", tuple(kind.name for kind in self.resource_types), _TYPE_NAME)
        object.__setattr__(self, "_by_name", {kind.name: kind for kind in self.resource_types})

    def resource_type(self, name: str) -> ResourceType | None:
        """Return the resource type of this name, or None."""
        return self._by_name.get(name)


def quoted(text: str) -> str:
    """Return `text` as a Cedar string literal.

    Everything but printable ASCII is escaped, so no quote, line end or direction mark leaves the literal
    (Cedar language, string escapes). Catalogue names never need it; it is the second lock on that door.
    """
    plain = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(plain.get(c, c if " " <= c <= "~" else f"\\u{{{ord(c):x}}}") for c in text) + '"'


def _enum(name: str, values: tuple[str, ...]) -> str:
    return f"entity {name} enum [{', '.join(quoted(value) for value in values)}];"


def _longs(name: str, fields: tuple[str, ...]) -> str:
    return f"type {name} = {{ {', '.join(f'{quoted(one)}: Long' for one in fields)} }};"


def _resource(kind: ResourceType) -> str:
    lines = [f"entity {kind.name} in [Class, Operation] = {{"]
    for attribute in kind.attributes:
        mark = "said by the actor" if attribute.said else "known to the issuer"
        lines.append(f"  {quoted(attribute.name)}: {_CEDAR_TYPES[attribute.kind]}, // {mark}")
    return "\n".join([*lines, "};"])


def _acts() -> list[str]:
    """Return the actions of people; hosts and actors are not asked about, since they may do none of it (SEC-02)."""
    context = '{ "now": datetime, "command": String }'
    return [
        f'action "{act}" appliesTo {{ principal: [Person], resource: [{", ".join(types)}], context: {context} }};'
        for act, types in ACTS.items()
    ]


def cedar_schema(catalogue: Catalogue) -> str:
    """Return the Cedar schema text of a catalogue, ending with a line end.

    Every entity, action and context of the policies room is declared here and nowhere else (POL-01, POL-02).
    """
    resources = ", ".join(kind.name for kind in catalogue.resource_types)
    tier = f"appliesTo {{ principal: [Actor], resource: [{resources}], context: Ask }};"
    approve = 'principal: [Person], resource: [Request], context: { "now": datetime }'
    effect = '"subject": Person, "actor": Actor, "state": String, "own": Bool'
    ask = (
        '"subject": Person, "task": Task, "cost": Units, "remaining": Units, "recipients": Set<String>, '
        '"earlier": Earlier, "usage": Usage, "limits": Limits, "clock": Clock'
    )
    return "\n".join(
        [
            "// Generated from the owner profile. What is not marked otherwise is known to the issuer.",
            "entity Group;",
            _enum("Role", ROLES),
            'entity Person in [Group, Role] = { "suspended": Bool };',
            'entity Actor in [Group] = { "answers_to": Person, "suspended": Bool };',
            'entity Task in [Task] = { "subject": Person, "depth": Long, "expires": datetime };',
            _enum("Class", catalogue.classes),
            _enum("Operation", catalogue.operations),
            *(_resource(kind) for kind in catalogue.resource_types),
            _longs("Units", catalogue.units),
            _longs("Earlier", EARLIER_FIELDS),
            _longs("Usage", USAGE_FIELDS),
            f"// A bound that the owner did not declare reads {UNBOUNDED}.",
            _longs("Limits", LIMITS_FIELDS),
            'type Clock = { "now": datetime, "minute_of_day": Long, "weekday": Long };',
            f"type Ask = {{ {ask} }};",
            'action "permit";',
            f'action "issue" in ["permit"] {tier}',
            f'action "requestApproval" in ["permit"] {tier}',
            'entity Request in [Class] = { "subject": Person, "actor": Actor, "approvers": Group };',
            f'action "approve" appliesTo {{ {approve} }};',
            _enum(ISSUER_TYPE, (ISSUER_ID,)),
            "// `own` says whether it is the caller's own; `state` is where it stands.",
            f"entity {EFFECT_TYPE} in [Class, Operation] = {{ {effect} }};",
            *_acts(),
            "",
        ]
    )
