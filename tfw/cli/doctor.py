"""`tfw doctor`: shows the findings as a table, as plain lines or as JSON."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import platform
import sys
from itertools import groupby

from tfw.cli.diagnosis import Finding, Status, examine
from tfw.cli.main import version

_COLOURS: dict[Status, str] = {"ok": "green", "absent": "dim", "limited": "yellow", "broken": "red"}


def run(*, as_json: bool) -> int:
    """Examine, print, and return 0 if the CPU path works, else 1."""
    findings = examine()
    works = all(finding.status != "broken" for finding in findings)
    if as_json:
        report = {
            "tfw": version(),
            "platform": platform.platform(),
            "works": works,
            "findings": [dataclasses.asdict(finding) for finding in findings],
        }
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    elif sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        _show_table(findings, works)
    else:
        _show_plain(findings, works)
    return 0 if works else 1


def _title() -> str:
    return f"tfw {version()} on {platform.system()} {platform.machine()}"


def _detail(finding: Finding) -> str:
    if finding.status == "absent" and finding.remedy:
        return f"{finding.detail} (optional: {finding.remedy})"
    return finding.detail


def _remedies(findings: list[Finding]) -> list[str]:
    return [f"{f.name}: {f.remedy}" for f in findings if f.remedy and f.status != "absent"]


def _verdict(findings: list[Finding], works: bool) -> str:
    if not works:
        return "The CPU path does not work; see what is broken above."
    if any(f.name.startswith("cuda:") and f.status == "ok" for f in findings):
        return "Training works on the CPU and on the GPU."
    return "Training works on the CPU; there is no GPU that tfw can use."


def _show_plain(findings: list[Finding], works: bool) -> None:
    lines = [_title()]
    width = max(len(finding.name) for finding in findings)
    for section, members in groupby(findings, key=lambda finding: finding.section):
        lines += ["", section]
        lines += [f"  {f.status:<8} {f.name:<{width}}  {_detail(f)}" for f in members]
    if remedies := _remedies(findings):
        lines += ["", "what to do", *(f"  {remedy}" for remedy in remedies)]
    lines += ["", _verdict(findings, works)]
    sys.stdout.write("\n".join(lines) + "\n")


def _show_table(findings: list[Finding], works: bool) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)  # it respects NO_COLOR and the width of the window
    console.print(Text(_title(), style="bold"))
    width = max(len(finding.name) for finding in findings)
    for section, members in groupby(findings, key=lambda finding: finding.section):
        table = Table.grid(padding=(0, 2))
        table.add_column(width=max(map(len, _COLOURS)))
        table.add_column(width=width)
        table.add_column(overflow="fold")
        for finding in members:
            status = Text(finding.status, style=_COLOURS[finding.status])
            table.add_row(status, finding.name, Text(_detail(finding)))
        console.print()
        console.print(Text(section, style="bold"))
        console.print(Padding(table, (0, 0, 0, 2)))
    if remedies := _remedies(findings):
        console.print()
        console.print(Text("what to do", style="bold"))
        for remedy in remedies:
            console.print(Padding(Text(remedy), (0, 0, 0, 2)))
    console.print()
    console.print(Text(_verdict(findings, works), style="bold" if works else "bold red"))
