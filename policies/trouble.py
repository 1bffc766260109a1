"""Why could something not be decided? The closed list of words, and the policy that each is about.

Rule (SEC-01, SEC-04): a word, never a text of the engine, because those repeat what an actor said.
Next: `policies.directory` and `policies.engine` are the two that use the words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Trouble = Literal[
    "missing_attribute",
    "missing_entity",
    "overflow",
    "type_error",
    "bad_value",
    "unknown_value",
    "recursion",
    "bad_facts",
    "no_decision",
    "engine_fault",
    "small_stack",
    "anomaly",
]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PolicyTrouble:
    """Which policy could not be evaluated (empty where the question itself was at fault), and why."""

    policy_id: str
    reason: Trouble
