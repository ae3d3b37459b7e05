#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the Go and the Python tests, and end with a summary of at most 15 lines.

    tools/run_tests.py                        # both
    tools/run_tests.py --only go -- ./io      # go test's arguments
    tools/run_tests.py --only python -- -n 0  # pytest's arguments
    tools/run_tests.py --skipped              # the Python tests that the last run skipped

Both run at the same time, because most tests wait more than they compute.
A line reports each Go package and each minute of the Python tests. Failed tests are printed with their output as they
end; the output of all others stays in build/test. Skipped tests are grouped by what they miss. --json writes the
summary to a file. The exit status is 1 if a test failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gotool
from testlog import GoLog, Outcome, python_outcomes

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "tests" / "go" / "example"  # a module of its own: a provider that lives outside of this one
LINES = 15  # of the summary
TAIL = 60  # lines of a failed test's output that are printed
LIMIT = 3600  # seconds for the Go tests, and for the Python tests
# Python tests mostly wait, beside the Go tests, too: two processes a core. Each needs memory for PyTorch.
PROCESSES = min(4, 2 * (os.cpu_count() or 1))
# make lint runs go vet. Test programs without symbol tables and DWARF link in half the time.
GO_OPTIONS = ["-vet=off", "-ldflags=-s -w"]

# What a skipped test lacks, by a pattern of its reason, and the remedy. The first match counts.
MISSING = [
    (r"^the provider |^the device has no|^the suite runs", "cases that a provider does not offer", ""),
    (r"real GPU|torch\.cuda|there are \d+ GPUs|reach each other|nothing is compiled for real devices",
     "a real GPU", "MORI_REQUIRE=gpu on a machine with GPUs"),
    (r"[Rr]DMA device|real devices|real ones", "real RDMA devices", "make test-rdma"),
    (r"libamdhip64", "the HIP runtime", "apt-get install libamdhip64-5"),
    (r"libfabric|fi_pingpong", "libfabric", "apt-get install libfabric-dev libfabric-bin"),
    (r"libibverbs-dev|vendor's headers", "RDMA headers", "apt-get install libibverbs-dev"),
    (r"OpenSHMEM|oshcc", "an OpenSHMEM library", "apt-get install openmpi-bin libopenmpi-dev"),
    (r"mpirun", "mpirun", "apt-get install openmpi-bin"),
    (r"clang|lld|HIP compiler", "clang 19", "apt-get install clang-19 lld-19"),
    (r"chromium|[Bb]rowser", "a browser", "apt-get install chromium"),
    (r"torch|triton", "PyTorch", "make dev-torch"),
    (r"iproute2|namespace|\bip\b.* is not", "network namespaces", "root, and apt-get install iproute2"),
    (r"root", "root", "run as root"),
    (r"(\w+) is not installed|could not import|importskip", "a Python package", "pip install -r requirements-dev.txt"),
]
# Tests that are programs for other tests to start. Run alone, they do nothing.
PROGRAMS = re.compile(r"this is (not )?(the|a) process|starts it for each|-short|MORI_\w+ is not set")


@dataclass
class Count:
    """How the tests of one language ended."""

    language: str
    passed: int = 0
    failed: list[Outcome] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    seconds: float = 0.0
    broken: str = ""  # why the run has no result, if it has none

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Count outcomes; programs that other tests start do not count."""
        for outcome in outcomes:
            if outcome.status == "pass":
                self.passed += 1
            elif outcome.status == "fail":
                self.failed.append(outcome)
            elif not PROGRAMS.search(outcome.reason):
                self.skipped[outcome.reason] += 1

    def __str__(self) -> str:
        text = f"{self.passed:,} passed, {len(self.failed)} failed, {self.skipped.total()} skipped"
        return f"{self.language:<8}{text} in {self.seconds:.0f} s{': ' + self.broken if self.broken else ''}"


def print_failure(outcome: Outcome) -> None:
    """Print the name of a failed test and the end of its output."""
    lines = outcome.output.rstrip().splitlines()
    if len(lines) > TAIL:
        lines = [f"({len(lines) - TAIL} lines before)", *lines[-TAIL:]]
    print(f"FAIL {outcome.title}", *(f"    {line}" for line in lines), sep="\n", flush=True)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class Running:
    """The running processes. Each leads a process group."""

    def __init__(self) -> None:
        self._processes: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def add(self, process: subprocess.Popen[str]) -> None:
        """Add a process; kill it if stop was called before."""
        with self._lock:
            self._processes.add(process)
            if self._stopped:
                kill(process)

    def end(self, process: subprocess.Popen[str]) -> None:
        """Kill the rest of a process's group, and wait for the process."""
        kill(process)
        process.wait()
        with self._lock:
            self._processes.discard(process)

    def stop(self) -> None:
        """Kill all processes, and those that are added from now on."""
        with self._lock:
            self._stopped = True
            for process in self._processes:
                kill(process)


running = Running()


@contextlib.contextmanager
def bounded(process: subprocess.Popen[str]) -> Iterator[threading.Event]:
    """End a process and its group at LIMIT, or when the block is left."""
    late = threading.Event()
    running.add(process)

    def end() -> None:
        late.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGQUIT)  # go test and pytest print what was running
        time.sleep(5)
        kill(process)

    timer = threading.Timer(LIMIT, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        running.end(process)


def start(command: list[str], cwd: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    """Start a command in a process group of its own."""
    return subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)


def run_go(count: Count, arguments: list[str], cwd: Path, env: dict[str, str], log: Path) -> None:
    """Run go test in a module and add its outcomes; report each package as it ends."""
    names, command = GoLog(), ["go", "test", "-json", *GO_OPTIONS, *arguments]
    with start(command, cwd, env) as process, bounded(process) as late, log.open("a") as raw:
        assert process.stdout is not None
        for line in process.stdout:
            raw.write(line)
            whole = names.add(line)
            if whole is None or whole.status == "skip":  # a package without tests
                continue
            ended = names.packages[whole.package]
            outcomes = list(ended.outcomes())
            passed = sum(o.status == "pass" for o in outcomes)
            word = "ok  " if whole.status == "pass" else "FAIL"
            print(f"{word} {whole.package}: {passed} passed in {whole.seconds:.1f} s", flush=True)
            for outcome in outcomes:
                if outcome.status == "fail":
                    print_failure(outcome)
        status = process.wait()
    count.add(names.outcomes())
    if late.is_set():
        count.broken = f"no end within {LIMIT} s"
    elif status != 0 and not count.failed:
        count.broken = f"go test ended with status {status}"
        print("".join("".join(lines) for lines in names.build.values()), flush=True)


def go_tests(arguments: list[str], logs: Path, first: list[str]) -> Count:
    """Run the Go tests of this module, some packages before the others, and of the example."""
    count, started = Count("Go"), time.monotonic()
    log = logs / "go.jsonl"
    log.unlink(missing_ok=True)
    what = [*gotool.tags(), *(arguments or [*first, "./..."])]
    run_go(count, what, ROOT, gotool.environment("-race" in arguments), log)
    if not arguments:
        run_go(count, ["./..."], EXAMPLE, dict(os.environ), log)
    count.seconds = time.monotonic() - started
    return count


class Results:
    """The file of pytest's --results while pytest writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.printed: set[str] = set()

    def outcomes(self) -> list[Outcome]:
        """The outcomes so far."""
        return python_outcomes(self.path.read_text().splitlines()) if self.path.exists() else []

    def report(self) -> None:
        """Print the failures that were not printed before."""
        for outcome in self.outcomes():
            if outcome.status == "fail" and outcome.title not in self.printed:
                self.printed.add(outcome.title)
                print_failure(outcome)


def skipped_before(logs: Path) -> list[str]:
    """The Python tests that the last run skipped: packages that were missing may be there now."""
    skipped = [o for o in Results(logs / "python.jsonl").outcomes() if o.status == "skip"]
    return [f"{o.package}::{o.name}".removesuffix("::") for o in skipped]


def python_tests(arguments: list[str], logs: Path) -> Count:
    """Run the Python tests in PROCESSES processes."""
    count, started = Count("Python"), time.monotonic()
    results = Results(logs / "python.jsonl")
    results.path.unlink(missing_ok=True)
    chosen = any(Path(ROOT, argument.partition("::")[0]).exists() for argument in arguments)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(PROCESSES), "--dist", "worksteal",
               f"--results={results.path}", *arguments, *([] if chosen else ["tests/python"])]
    with start(command, ROOT, dict(os.environ)) as process, bounded(process) as late:
        assert process.stdout is not None
        text: list[str] = []
        reader = threading.Thread(target=lambda: text.extend(process.stdout or ()), daemon=True)
        reader.start()
        while reader.is_alive():
            reader.join(60)
            results.report()
            if reader.is_alive():
                ended = Counter(o.status for o in results.outcomes())
                print(f"... Python: {ended['pass']:,} passed, {ended['fail']} failed, {ended['skip']} skipped after "
                      f"{time.monotonic() - started:.0f} s", flush=True)
        status = process.wait()
    (logs / "python.log").write_text("".join(text))
    count.add(results.outcomes())
    count.seconds = time.monotonic() - started
    if late.is_set():
        count.broken = f"no end within {LIMIT} s"
    elif status != 0 and not count.failed:
        count.broken = f"pytest ended with status {status}"
        print("".join(text[-TAIL:]), flush=True)
    return count


def skips(counts: list[Count]) -> list[str]:
    """The skipped tests by what they miss, most frequent first, with what to do about it."""
    grouped: Counter[tuple[str, str]] = Counter()
    for count in counts:
        for reason, number in count.skipped.items():
            known = next(((what, remedy) for pattern, what, remedy in MISSING if re.search(pattern, reason)), None)
            grouped[known or (reason, "")] += number
    lines = []
    for (what, remedy), number in grouped.most_common():
        lines.append(f"{number:>6}  need {what}: {remedy}" if remedy else f"{number:>6}  {what}")
    return lines


def shortened(lines: list[str], room: int, rest: str) -> list[str]:
    """The lines, or as many of them as there is room for, and a line that counts the rest."""
    return lines if len(lines) <= room else [*lines[:room - 1], rest.format(len(lines) - room + 1)]


def summary(counts: list[Count], logs: str = "build/test") -> list[str]:
    """At most LINES lines: a line for each language, the failed tests, the skipped ones by reason."""
    lines = [str(count) for count in counts]
    failed = [f"failed  {outcome.title}" for count in counts for outcome in count.failed]
    reasons = skips(counts)
    room = LINES - len(lines) - 1 - bool(reasons)  # the last line, and the title of the skips
    failed = shortened(failed, room - min(len(reasons), 4), "failed  and {} more")
    reasons = shortened(reasons, room - len(failed), "        and {} more reasons")
    good = not failed and not any(count.broken for count in counts)
    return [*lines, *failed, *(["skipped"] if reasons else []), *(line[:110] for line in reasons),
            "every test that ran passed" if good else f"RED: the whole output is in {logs}"]


def as_json(counts: list[Count]) -> str:
    """The summary for programs."""
    return json.dumps([{
        "language": count.language, "passed": count.passed, "failed": [o.title for o in count.failed],
        "skipped": dict(count.skipped), "seconds": round(count.seconds, 1), "broken": count.broken,
    } for count in counts], indent=1) + "\n"


def torch_installed() -> int:
    """Install PyTorch in .venv, unless TORCH=0; return the exit status."""
    with start([sys.executable, str(ROOT / "tools" / "dev.py"), "--torch"], ROOT, dict(os.environ)) as process, \
            bounded(process):
        for line in process.stdout or ():
            print(line, end="", flush=True)
        return process.wait()


def python_suite(args: argparse.Namespace) -> Count:
    """Install PyTorch, if the arguments say so, and run the Python tests."""
    if args.torch and (status := torch_installed()) != 0:
        return Count("Python", broken=f"tools/dev.py --torch ended with status {status}")
    return python_tests(args.arguments, args.logs)


def run_tests(args: argparse.Namespace) -> list[Count]:
    """Run what was asked for, the Go tests beside the Python tests."""
    with ThreadPoolExecutor() as pool:
        suites = []
        if args.only != "python":
            suites.append(pool.submit(go_tests, args.arguments, args.logs, args.first.split()))
        if args.only != "go":
            suites.append(pool.submit(python_suite, args))
        try:
            return [suite.result() for suite in suites]
        except BaseException:
            running.stop()
            raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["go", "python"])
    parser.add_argument("--skipped", action="store_true", help="only the Python tests that the last run skipped")
    parser.add_argument("--torch", action="store_true", help="install PyTorch beside the Go tests, unless TORCH=0")
    parser.add_argument("--first", default="", metavar="PACKAGES", help="Go packages that begin before the others")
    parser.add_argument("--logs", type=Path, default=ROOT / "build" / "test", metavar="FOLDER",
                        help="where the output of the tests goes (default: build/test)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary to FILE, too")
    parser.add_argument("arguments", nargs="*", help="with --only: arguments of go test or pytest, after --")
    args = parser.parse_args()
    if args.arguments and not args.only:
        parser.error("arguments of go test or pytest need --only")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    args.logs.mkdir(parents=True, exist_ok=True)
    if args.skipped:
        args.only, args.arguments = "python", [*args.arguments, *skipped_before(args.logs)]
    try:
        counts = run_tests(args)
    except KeyboardInterrupt:
        print("tests: interrupted", file=sys.stderr)
        return 130
    print("\n" + "\n".join(summary(counts, os.path.relpath(args.logs))))
    if args.json:
        args.json.write_text(as_json(counts))
    return int(any(count.failed or count.broken for count in counts))


if __name__ == "__main__":
    sys.exit(main())
