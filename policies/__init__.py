"""The policies room: may this effect happen without a person? Cedar decides, and only typed facts reach it.

Read `facts` (what is known), `bundle` (which rules), `decision` (the answer). Nothing here counts, stores,
reads a clock or talks to a person; the issuer does, and writes the decision into its transaction.
"""

from policies.bundle import Bundle, load_bundle
from policies.canaries import run_canaries
from policies.decision import ApproverDecision, Decision, TierResult, decide, may_approve, undecided
from policies.directory import ActorFact, Directory, FactsRefused, PersonFact
from policies.engine import EngineUnfit, PolicyShape, engine_version
from policies.facts import (
    ApprovalFacts,
    ClockFact,
    Earlier,
    Facts,
    Limits,
    TaskFact,
    Usage,
)
from policies.findings import BundleRefused, Finding
from policies.schema import (
    UNBOUNDED,
    Attribute,
    Catalogue,
    CatalogueRefused,
    ResourceType,
    cedar_schema,
)
from policies.starter import starter_files
from policies.trouble import PolicyTrouble, Trouble

__all__ = [
    "UNBOUNDED",
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
    "may_approve",
    "run_canaries",
    "starter_files",
    "undecided",
]
