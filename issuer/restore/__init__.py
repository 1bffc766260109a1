"""Bringing a ledger back from a backup, as an explicit and audited act (LED-08, ADR-0014).

`retold` reads what the sinks saw after the backup, `sinks` holds each sink against it, `steps` says what the new epoch
begins with, `exchange` puts the new file in the old one's place, and `restoring` does one after the other.
"""
