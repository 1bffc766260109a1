"""`issuer doctor`: is everything that this issuer rests on as it has to be? Looks only, and changes nothing.

Rules: ADR 0001 (foreign rooms: nothing of them is loaded), LED-04, POL-04, AUD-02, AUD-03, SEC-03 (each is judged as
the start judges it, but all of them and not up to the first), SEC-01 (no finding shows a secret). Checks are
independent: one that fails, or cannot even be loaded, hides no other; what rests on it says that it was not judged.
It decides nothing for an effect. Next: `issuer.surfaces.cli.doctor` shows the findings.
"""

from issuer.selfcheck.examination import Report, examine
from issuer.selfcheck.finding import Finding

__all__ = ["Finding", "Report", "examine"]
