#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run tests many times beside busy processes, and list each that was not green in every run.

    tools/steady.py --runs 30 --load 2                      # all Go packages and Python folders
    tools/steady.py --runs 30 ./io ./core/provider/...      # these Go packages
    tools/steady.py --runs 10 tests/python/io               # these Python folders or files
    tools/steady.py --runs 50 --test 'TestCancel.*' ./io    # some tests of a package
    tools/steady.py --jobs 12 --load 16 --budget 500 --from bundle/bin  # another machine, without Go

Each Go package is compiled once and its program run many times, in random order. Every unit has its first run before
one has its second. Every run ends within --limit. The output of each red run stays in build/steady. The exit status is
1 if the table has a row or a unit had no run. For a machine without Go, tools/gpu_bundle.py --all makes the programs
that --from reads.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gotool
from testlog import GoLog, Outcome, python_outcomes

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "steady"
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"  # ends with this program in any case
WITH_TESTS = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"  # for go list
SLACK = 30  # seconds beyond a program's own time limit, for it to print what it was doing


@dataclass
class Row:
    """A test that was red at least once."""

    test: str
    unit: str
    failures: int
    reason: str
    logs: list[str] = field(default_factory=list)


@dataclass
class Unit:
    """How often a package or folder ran."""

    runs: int = 0
    red_runs: int = 0
    seconds: float = 0.0  # of all runs

    def add(self, seconds: float, red: bool) -> None:
        """Count one run."""
        self.runs += 1
        self.red_runs += red
        self.seconds += seconds


class Display:
    """Shows where the work is: one line that is rewritten on a terminal, a line for each unit elsewhere."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()

    def progress(self, text: str) -> None:
        """Show the state of the unit that is running."""
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r\x1b[K{text[:width]}")
            sys.stderr.flush()

    def line(self, text: str) -> None:
        """Show a line that stays."""
        if self.live:
            sys.stderr.write("\r\x1b[K")
        print(text, file=sys.stderr, flush=True)


running: set[int] = set()  # leaders of the process groups that run_limited has started


def kill_running() -> None:
    """Kill what run_limited waits for, so that an interrupt does not wait for the limit of a run."""
    for leader in list(running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)


def run_limited(command: list[str], cwd: Path, env: dict[str, str], limit: float) -> tuple[int | None, str]:
    """Run a command in its own process group; return its output and its status, None if it was killed at the limit."""
    with subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True) as process:
        running.add(process.pid)
        try:
            output, _ = process.communicate(timeout=limit)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output
        finally:
            running.discard(process.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what the tests left running


class GoUnit:
    """One Go package: compiled once, run many times."""

    def __init__(self, package: str, folder: Path, args: argparse.Namespace) -> None:
        self.name, self.folder, self.args = package, folder, args
        race = ".race" if args.race else ""
        self.program = (args.programs or LOGS / "bin") / f"{package.replace('/', '.')}{race}.test"
        carried = args.programs and args.programs / "test2json"
        self.converter = [str(carried)] if carried else ["go", "tool", "test2json"]

    def prepare(self) -> str:
        """Compile the test program; return the compiler's output if that fails."""
        if self.args.programs:
            return "" if self.program.exists() else f"{self.program} is missing"
        race = ["-race"] if self.args.race else []
        command = ["go", "test", "-c", *gotool.tags(), *race, "-o", str(self.program), self.name]
        status, output = run_limited(command, ROOT, gotool.environment(self.args.race), 1800)
        return "" if status == 0 else output or f"exit status {status}"

    def run(self, number: int) -> tuple[list[Outcome], str]:
        """Run it once: the outcomes of its tests, and its output."""
        limit = self.args.limit
        command = [*self.converter, "-t", "-p", self.name, str(self.program), "-test.v=test2json",
                   "-test.shuffle=on", "-test.paniconexit0", f"-test.timeout={limit}s"]
        if self.args.test:
            command.append(f"-test.run={self.args.test}")
        status, output = run_limited(command, self.folder, dict(os.environ), limit + SLACK)
        log, text = GoLog(), []
        for line in output.splitlines():
            log.add(line)
            with contextlib.suppress(ValueError, AttributeError):
                text.append(json.loads(line).get("Output", ""))
        outcomes = log.outcomes()
        if status != 0 and not any(o.status == "fail" for o in outcomes):
            why = f"no end within {limit + SLACK} s" if status is None else f"exit status {status}"
            outcomes.append(Outcome(self.name, "", "fail", 0, why))
        return outcomes, "".join(text)


class PythonUnit:
    """A folder or file of Python tests."""

    def __init__(self, path: str, args: argparse.Namespace) -> None:
        self.name, self.args = path, args

    def prepare(self) -> str:
        """Do nothing: make dev has compiled everything."""
        return ""

    def run(self, number: int) -> tuple[list[Outcome], str]:
        """Run it once: the outcomes of its tests, and its output."""
        results = LOGS / f"results-{re.sub(r'[^A-Za-z0-9]+', '-', self.name)}-{number}.jsonl"
        command = [sys.executable, "-m", "pytest", self.name, "-q", "-n", str(min(4, os.cpu_count() or 1)), "--dist",
                   "worksteal", "-p", "no:cacheprovider", f"--results={results}"]
        if self.args.test:
            command += ["-k", self.args.test]
        results.unlink(missing_ok=True)
        status, output = run_limited(command, ROOT, dict(os.environ), self.args.limit)
        outcomes = python_outcomes(results.read_text().splitlines()) if results.exists() else []
        results.unlink(missing_ok=True)
        red = any(o.status == "fail" for o in outcomes)
        if status not in (0, 5) and not red:  # 5: no test was selected
            why = f"no end within {self.args.limit} s" if status is None else f"exit status {status}"
            outcomes.append(Outcome(self.name, "", "fail", 0, why))
        return outcomes, output


def go_units(patterns: list[str], args: argparse.Namespace) -> list[GoUnit]:
    """The Go packages with tests that the patterns match; with --from, all that were compiled."""
    if args.programs:
        names = sorted(path.stem.replace(".", "/") for path in args.programs.glob("mori.*.test"))
        return [GoUnit(name, ROOT / name.partition("/")[2], args) for name in names]
    found = subprocess.run(
        ["go", "list", *gotool.tags(), "-f", WITH_TESTS, *patterns],
        cwd=ROOT, env=gotool.environment(), capture_output=True, text=True, check=False)
    if found.returncode != 0:
        sys.exit(f"steady: go list: {found.stderr.strip()}")
    pairs = [line.split(" ", 1) for line in found.stdout.splitlines() if line]
    return [GoUnit(package, Path(folder), args) for package, folder in pairs]


def python_folders() -> list[str]:
    """The folders of tests/python that have tests, and the files beside them."""
    top = ROOT / "tests" / "python"
    folders = sorted({path.parent for path in top.rglob("test_*.py")} - {top})
    return [str(path.relative_to(ROOT)) for path in [*folders, *sorted(top.glob("test_*.py"))]]


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep some processes busy until the block ends."""
    processes = [subprocess.Popen([sys.executable, "-S", "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


class Table:
    """The red tests, and the number of runs of each unit."""

    def __init__(self, units: list[GoUnit | PythonUnit]) -> None:
        self.rows: dict[str, Row] = {}
        self.units = {unit.name: Unit() for unit in units}
        self._lock = threading.Lock()

    def add(self, unit: str, run: int, outcomes: list[Outcome], output: str, seconds: float) -> int:
        """Take one run; return how many of its tests were red."""
        red = [o for o in outcomes if o.status == "fail"]
        with self._lock:
            self.units[unit].add(seconds, bool(red))
            if not red:
                return 0
            log = LOGS / "log" / f"{re.sub(r'[^A-Za-z0-9.]+', '-', unit)}-{run}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("".join(f"### {o.title}\n{o.output}\n" for o in red) + f"### the whole run\n{output}")
            for outcome in red:
                row = self.rows.setdefault(outcome.title, Row(outcome.title, unit, 0, outcome.reason))
                row.failures += 1
                row.logs.append(str(log.relative_to(ROOT)))
        return len(red)

    def list_units(self) -> str:
        """How often each unit ran, and how long it took."""
        lines = [f"{'runs':>5} {'red':>4} {'s a run':>8}  unit"]
        for name, unit in sorted(self.units.items(), key=lambda pair: -pair[1].seconds):
            lines.append(f"{unit.runs:>5} {unit.red_runs:>4} {unit.seconds / max(unit.runs, 1):>8.1f}  {name}")
        return "\n".join(lines)

    def __str__(self) -> str:
        runs = sum(unit.runs for unit in self.units.values())
        fewest = min((unit.runs for unit in self.units.values()), default=0)
        if not fewest and not self.rows:
            idle = sum(not unit.runs for unit in self.units.values())
            return f"steady: {idle} of {len(self.units)} packages and folders had no run, so this says nothing of them"
        if not self.rows:
            what = f"{len(self.units)} packages and folders, {runs} runs, at least {fewest} of each"
            return f"steady: {what}: every test green in each"
        rows = sorted(self.rows.values(), key=lambda row: -row.failures / max(self.units[row.unit].runs, 1))
        width = max(len(row.test) for row in rows)
        lines = [f"{'test':<{width}}  red/runs  reason"]
        lines += [f"{r.test:<{width}}  {f'{r.failures}/{self.units[r.unit].runs}':>8}  {r.reason}" for r in rows]
        lines.append(f"steady: {len(rows)} tests were not green in every run; their output is in build/steady/log")
        return "\n".join(lines)


def measure(units: list[GoUnit | PythonUnit], args: argparse.Namespace, table: Table) -> None:
    """Run every unit --runs times, --jobs of them at a time, until the budget is spent."""
    display, started = Display(), time.monotonic()
    ready = []
    for number, unit in enumerate(units, 1):
        display.progress(f"[{number}/{len(units)}] {unit.name}: compiling")
        if failed := unit.prepare():
            table.add(unit.name, 0, [Outcome(unit.name, "", "fail", 0, failed)], failed, 0)
            display.line(f"{unit.name}: does not compile")
        else:
            ready.append(unit)
    total, ended, red, stop = len(ready) * args.runs, 0, 0, threading.Event()

    def once(unit: GoUnit | PythonUnit, run: int) -> None:
        nonlocal ended, red
        if stop.is_set() or (args.budget and time.monotonic() - started > args.budget):
            return
        began = time.monotonic()
        outcomes, output = unit.run(run)
        if stop.is_set():
            return  # it was interrupted, too
        found = table.add(unit.name, run, outcomes, output, time.monotonic() - began)
        ended, red = ended + 1, red + bool(found)
        display.progress(f"{ended} of {total} runs, {red} red, {time.monotonic() - started:.0f} s: {unit.name}")
        if found:
            display.line(f"{unit.name}, run {run}: {found} tests red")

    with busy(args.load), ThreadPoolExecutor(args.jobs) as pool:
        runs = [pool.submit(once, unit, run) for run in range(1, args.runs + 1) for unit in ready]
        try:
            for one in runs:
                one.result()
        except BaseException:
            stop.set()
            kill_running()
            raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="Go package patterns and Python folders; all when none is given")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--load", type=int, default=2, help="busy processes beside the tests")
    parser.add_argument("--limit", type=int, default=900, metavar="SECONDS", help="time limit of one run")
    parser.add_argument("--test", help="only these tests: go test's -run, pytest's -k")
    parser.add_argument("--race", action="store_true", help="compile Go with the race detector")
    parser.add_argument("--only", choices=["go", "python"])
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="begin no run after this time")
    parser.add_argument("--from", dest="programs", type=Path, metavar="FOLDER", help="compiled test programs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table to FILE, too")
    args = parser.parse_args()

    python = [w for w in args.what if w.startswith("tests/python")]
    go = [w for w in args.what if w not in python]
    if args.programs:
        args.programs = args.programs.resolve()
    if not args.what:
        go, python = ["./..."], python_folders()
    units: list[GoUnit | PythonUnit] = []
    if go and args.only != "python":
        units += go_units(go, args)
    if args.only != "go":
        units += [PythonUnit(path, args) for path in python]
    # A background job of a shell ignores SIGINT; both signals end with the table of what ran so far.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    shutil.rmtree(LOGS / "log", ignore_errors=True)
    (LOGS / "bin").mkdir(parents=True, exist_ok=True)
    table = Table(units)
    try:
        measure(units, args, table)
    except KeyboardInterrupt:
        print("steady: interrupted", file=sys.stderr)
        return 130
    finally:
        print(table.list_units(), table, sep="\n\n")
        if args.json:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            rows = [asdict(row) for row in table.rows.values()]
            ran = {name: asdict(unit) for name, unit in table.units.items()}
            args.json.write_text(json.dumps({"units": ran, "unsteady": rows}, indent=1) + "\n")
    return 1 if table.rows or not all(unit.runs for unit in table.units.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
