"""`doctor` on the command line."""

from issuer.selfcheck import Report, examine
from issuer.surfaces.cli.options import Settings
from issuer.surfaces.cli.output import show
from issuer.surfaces.cli.running import trouble
from issuer.wire import Answer

_PROBLEMS_ONE = "There is 1 problem."
_WELL = "No problem was found."


def _say(report: Report) -> str:
    problems = report.problems
    if not problems:
        return _WELL
    told = _PROBLEMS_ONE if problems == 1 else f"There are {problems} problems."
    return f"{told} Nothing was changed."


def run_doctor(settings: Settings, as_whom: str | None) -> int:
    """Look at everything the issuer rests on, and say what is well, what is not and what to do."""
    if as_whom is not None:
        say = "Not supported yet: --as, since other accounts come with `issuer serve`."
        return trouble("unsupported", say, as_json=settings.as_json)
    report = examine(settings.profile_path)
    more = {"findings": [found.as_json() for found in report.findings]}
    answer = Answer(issuer=report.issuer, code=report.code, mode=report.mode, say=_say(report), more=more)
    show(answer, as_json=settings.as_json)
    return int(answer.exit)
