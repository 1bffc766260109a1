"""Signed checkpoints of the trail: made from the ledger's own leaves, kept outside it, and carried away (AUD-04).

`memory` is what the signer remembers, `notes` the files that it writes and their copies, `proof` whether a ledger goes
on from what was signed, `signing` the steps in their order, and `keeper` when. ADR-0031 says why.
"""

__all__: list[str] = []
