"""A gate to JUnit XML, as test reporters of pipelines read it. No clock, no I/O.

One suite for the SLO and one for the baseline, one case a clause (or metric) and level. A fail is a `failure`, an
inconclusive check an `error`: what the server did wrong and what could not be found out are told apart.
"""

import re
from collections.abc import Sequence
from xml.etree import ElementTree as Xml

from harness.decisions import Change, Check, Gate
from harness.report import words
from harness.report.gated import label

UNFIT = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document may hold."""
TAGS = {"fail": "failure", "inconclusive": "error"}


def xml(gate: Gate) -> bytes:
    """The document, UTF-8. Equal gates give equal bytes."""
    found: list[Check | Change] = [*gate.checks, *gate.changes]
    root = Xml.Element("testsuites", _counts(found) | {"name": fit(gate.scenario)})
    if gate.checks or not gate.changes:
        root.append(_suite(gate, "SLO", gate.checks))
    if gate.changes:
        root.append(_suite(gate, f"against {gate.baseline}", gate.changes))
    if gate.exit_code and all(each.decision == "pass" for each in found):
        root.append(_whole(gate))
    Xml.indent(root)
    return bytes(Xml.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def fit(text: str) -> str:
    """Text without what XML cannot hold."""
    return UNFIT.sub("�", text)


def _suite(gate: Gate, name: str, found: Sequence[Check | Change]) -> Xml.Element:
    suite = Xml.Element("testsuite", _counts(found) | {"name": fit(f"{gate.scenario}: {name}")})
    run = Xml.SubElement(suite, "properties")
    for key, value in (("run_id", gate.run_id), ("host", gate.host), ("model", gate.model)):
        Xml.SubElement(run, "property", {"name": key, "value": fit(value)})
    suite.extend(_case(gate, each) for each in found)
    return suite


def _case(gate: Gate, each: Check | Change) -> Xml.Element:
    at = words.load_of(each.load, each.axis)
    name, why = (each.clause, each.why) if isinstance(each, Check) else (each.metric, each.text)
    seconds = {"time": f"{each.hold_s:g}"} if isinstance(each, Check) else {}
    case = Xml.Element("testcase", {"classname": fit(gate.scenario), "name": f"{label(name)} at {at}"} | seconds)
    if each.decision in TAGS:
        case.append(_trouble(TAGS[each.decision], why, f"{name} at {at}: {why}"))
    return case


def _whole(gate: Gate) -> Xml.Element:
    """Every check passed, and yet the run cannot be trusted: one more case says why."""
    suite = Xml.Element("testsuite", {"name": "the run as a whole", "tests": "1", "failures": "0", "errors": "1"})
    case = Xml.SubElement(suite, "testcase", {"classname": fit(gate.scenario), "name": "the run can be trusted"})
    case.append(_trouble("error", gate.text, gate.text))
    return suite


def _trouble(tag: str, message: str, text: str) -> Xml.Element:
    found = Xml.Element(tag, {"message": fit(message), "type": "inconclusive" if tag == "error" else "fail"})
    found.text = fit(text)
    return found


def _counts(found: Sequence[Check | Change]) -> dict[str, str]:
    decisions = [each.decision for each in found]
    failed, unsure = decisions.count("fail"), decisions.count("inconclusive")
    return {"tests": str(len(decisions)), "failures": str(failed), "errors": str(unsure)}
