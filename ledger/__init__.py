"""The ledger: what exists, what it costs, what state it is in. The bottom room; it owns the vocabulary.

Other rooms import its modules by name (`ledger.model`, `ledger.port`, …); the store stands behind `ledger.sqlite`.
"""

__all__ = [
    "budgets",
    "canonical",
    "changes",
    "errors",
    "model",
    "port",
    "refusals",
    "rules",
    "states",
    "tree",
]

from ledger import budgets, canonical, changes, errors, model, port, refusals, rules, states, tree
