"""What a service said to a resend is kept, however late it came; and a copy of a process sends nothing again."""

import os
from pathlib import Path
from typing import Any

import pytest

from issuer.flow.steps import Reached
from tests.support.cases import Clock, all_at, books
from tests.support.reconciling import AFTER_3S, NOT_FOUND, Inquiry, opened_inquiry
from tests.support.revised import activated
from tests.support.service import answer, close_before_read


@pytest.mark.spec("REC-01", "REC-05", "REC-02")
@pytest.mark.parametrize("how", ["overdue", "terms"])
def test_a_success_that_came_too_late_is_kept_and_speaks_against_an_absence(tmp_path: Path, how: str) -> None:
    clock = Clock()
    inquiries: list[Inquiry] = []

    def observe(step: str) -> None:
        if step == Reached.LOOKED and inquiries and how == "overdue":
            clock.ahead_ms += 40_000
        elif step == Reached.LOOKED and inquiries:
            profile = inquiries.pop().made.profile
            text = profile.read_text(encoding="utf-8")
            profile.write_text(text.replace("permits = 200", "permits = 199"), encoding="utf-8")
            activated(profile, clock=clock)

    folder = tmp_path / "f0"
    with opened_inquiry(folder, absent=AFTER_3S, resend=True, clock=clock, observe=observe) as inquiry:
        effect = inquiry.unknown(close_before_read())
        inquiry.service.then(answer(201))
        inquiries.append(inquiry)
        assert inquiry.issuer.reconcile(effect, resend=True).state == "unknown"
        inquiries.clear()
        assert inquiry.evidence(effect)[-1][:2] == ("service", "unknown")
        inquiry.pass_ms(100_000)
        assert inquiry.look(effect, NOT_FOUND).state == "unknown"
        assert books(inquiry.issuer) == all_at(reserved=300)
        assert inquiry.service.effects_of(effect) == 1
        assert inquiry.checked()


@pytest.mark.spec("REC-03", "AUD-03")
def test_a_forked_copy_of_a_resender_sends_nothing(tmp_path: Path) -> None:
    parent = os.getpid()
    armed: list[bool] = []
    children: list[int] = []

    def observe(step: str) -> None:
        if step == Reached.ATTEMPT_ACKNOWLEDGED and armed:
            armed.clear()
            children.append(os.fork())

    with opened_inquiry(tmp_path / "f0", resend=True, observe=observe) as inquiry:
        effect = inquiry.unknown()
        inquiry.service.then(answer(201), answer(201))
        armed.append(True)
        said: Any = None
        try:
            said = inquiry.issuer.reconcile(effect, resend=True)
        finally:
            if os.getpid() != parent:
                os._exit(0)
        os.waitpid(children[0], 0)
        assert said.code == "succeeded"
        assert len(inquiry.service.writes) == 2
