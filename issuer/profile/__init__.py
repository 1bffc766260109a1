"""The owner's profile: what may be done here, for whom, and how much of it.

`load_profile` reads a TOML file and the registries it names, and returns a frozen `Profile` or raises
`ProfileRefused` with every finding at once. Besides `issuer/wire` this is the only place that uses
pydantic. Read `models.py` for the keys, `reading.py` for the steps, `rules_*.py` for what keys mean
together.
"""

from issuer.profile.fields import FieldRef
from issuer.profile.findings import Finding, FindingCode, ProfileRefused
from issuer.profile.models import (
    Absent,
    ActionClass,
    Actor,
    Audit,
    Before,
    Checkpoint,
    FieldKind,
    FileAdapter,
    Host,
    HostAdapter,
    HttpAdapter,
    Inspect,
    LedgerBounds,
    Notify,
    Operation,
    PayloadField,
    PermitCount,
    Person,
    Proves,
    PythonAdapter,
    Resource,
    Sink,
    Visibility,
    Wrapper,
)
from issuer.profile.profile import Profile, class_digest, cost_range, operation_digest
from issuer.profile.reading import load_profile, parse_profile, registries_declared
from issuer.profile.registry import Registry, read_registry
from issuer.profile.template import TemplateText
from issuer.profile.unserved import UNSERVED, Unserved, unserved, unserved_anywhere, unserved_reason

__all__ = [
    "UNSERVED",
    "Absent",
    "ActionClass",
    "Actor",
    "Audit",
    "Before",
    "Checkpoint",
    "FieldKind",
    "FieldRef",
    "FileAdapter",
    "Finding",
    "FindingCode",
    "Host",
    "HostAdapter",
    "HttpAdapter",
    "Inspect",
    "LedgerBounds",
    "Notify",
    "Operation",
    "PayloadField",
    "PermitCount",
    "Person",
    "Profile",
    "ProfileRefused",
    "Proves",
    "PythonAdapter",
    "Registry",
    "Resource",
    "Sink",
    "TemplateText",
    "Unserved",
    "Visibility",
    "Wrapper",
    "class_digest",
    "cost_range",
    "load_profile",
    "operation_digest",
    "parse_profile",
    "read_registry",
    "registries_declared",
    "unserved",
    "unserved_anywhere",
    "unserved_reason",
]
