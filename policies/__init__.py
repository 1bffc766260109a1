"""The policies room: may this effect happen without a person? Cedar decides, and only typed facts reach it.

Read `facts` (what is known), `bundle` (which rules), `decision` (the answer). Nothing here counts, stores,
reads a clock or talks to a person; the issuer does, and writes the decision into its transaction.
"""

from policies.bundle import Bundle, load_bundle
from policies.canaries import run_canaries
from policies.decision import (
    ActDecision,
    ApproverDecision,
    Decision,
    TierResult,
    decide,
    may_act,
    may_approve,
    undecided,
)
from policies.directory import ActorFact, Directory, FactsRefused, PersonFact
from policies.engine import EngineUnfit, PolicyShape, engine_version
from policies.facts import (
    ActFacts,
    ApprovalFacts,
    ClockFact,
    Earlier,
    EffectFact,
    Facts,
    Limits,
    TaskFact,
    Usage,
)
from policies.findings import BundleRefused, Finding
from policies.schema import (
    ACTS,
    ROLES,
    UNBOUNDED,
    Attribute,
    Catalogue,
    CatalogueRefused,
    ResourceType,
    cedar_schema,
)
from policies.starter import role_policies, starter_files
from policies.trouble import PolicyTrouble, Trouble

__all__ = [
    "ACTS",
    "ROLES",
    "UNBOUNDED",
    "ActDecision",
    "ActFacts",
    "ActorFact",
    "ApprovalFacts",
    "ApproverDecision",
    "Attribute",
    "Bundle",
    "BundleRefused",
    "Catalogue",
    "CatalogueRefused",
    "ClockFact",
    "Decision",
    "Directory",
    "Earlier",
    "EffectFact",
    "EngineUnfit",
    "Facts",
    "FactsRefused",
    "Finding",
    "Limits",
    "PersonFact",
    "PolicyShape",
    "PolicyTrouble",
    "ResourceType",
    "TaskFact",
    "TierResult",
    "Trouble",
    "Usage",
    "cedar_schema",
    "decide",
    "engine_version",
    "load_bundle",
    "may_act",
    "may_approve",
    "role_policies",
    "run_canaries",
    "starter_files",
    "undecided",
]
