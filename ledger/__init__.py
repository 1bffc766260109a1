"""The ledger: what exists, what it costs, what state it is in. The bottom room; it owns the vocabulary.

Other rooms import its modules by name (`ledger.model`, `ledger.port`, …); the store stands behind `ledger.sqlite`.
Nothing is loaded here, so that a command pays for the modules it uses and for no other.
"""

__all__: list[str] = []
