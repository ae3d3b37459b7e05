#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Make .venv: a virtual environment in which `import mori` runs this tree.

    python tools/dev.py            # what building, linting and most tests need
    python tools/dev.py --torch    # and PyTorch; TORCH=0 in the environment leaves it out

Run by the Python that the environment shall have. Each step is skipped when its
inputs are unchanged. Works without root, python3-venv, python3-dev and pip.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
PIP_VERSION = "25.3"
MIN_GO = (1, 24)


def say(text: str) -> None:
    """Print one progress line."""
    print(f"dev: {text}", flush=True)


def run(*command: str | Path, env: dict[str, str] | None = None) -> None:
    """Run a command; if it fails, exit with a message that names it."""
    done = subprocess.run([str(c) for c in command], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        sys.exit(f"dev: exit status {done.returncode} from: {' '.join(str(c) for c in command)}")


def check_tools() -> None:
    """Exit early, with its name, if a compiler is missing or too old."""
    for variable, otherwise, language, packages in (("CC", "gcc", "C", "gcc libc6-dev"), ("CXX", "g++", "C++", "g++")):
        compiler = os.environ.get(variable, otherwise).split()[0]
        if shutil.which(compiler) is None:
            sys.exit(f"dev: {compiler} is not on PATH: install a {language} compiler (apt-get install {packages})")
    if shutil.which("go") is None:
        sys.exit("dev: go is not on PATH: install Go 1.24 or later from https://go.dev/dl")
    text = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True, cwd="/").stdout
    found = re.match(r"go(\d+)\.(\d+)", text)
    if found and (int(found[1]), int(found[2])) < MIN_GO:
        sys.exit(f"dev: {text.strip()} is too old: install Go 1.24 or later from https://go.dev/dl")


def identity() -> str:
    """What an environment must have in common with this Python to be kept."""
    return f"{sys.version}\n{sysconfig.get_config_var('EXT_SUFFIX')}\n{sys.base_prefix}\n"


def stamped(name: str, content: str) -> bool:
    """Report whether step `name` was done for this content."""
    stamp = VENV / f".{name}.stamp"
    return stamp.exists() and stamp.read_text() == content


def mark(name: str, content: str) -> None:
    """Record that step `name` is done for this content."""
    (VENV / f".{name}.stamp").write_text(content)


def make_venv() -> None:
    """Create .venv with pip in it."""
    if stamped("python", identity()) and PYTHON.exists():
        return
    if Path(sys.prefix) == VENV:
        sys.exit("dev: .venv is stale and cannot remake itself: deactivate it and run make dev again")
    say(f"creating .venv for Python {sys.version.split()[0]}")
    shutil.rmtree(VENV, ignore_errors=True)
    # Debian and Ubuntu keep ensurepip in python3-venv.
    probe = [sys.executable, "-m", "ensurepip", "--version"]
    if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
        run(sys.executable, "-m", "venv", VENV)
    else:
        run(sys.executable, "-m", "venv", "--without-pip", VENV)
        say(f"ensurepip is not installed: fetching pip {PIP_VERSION}")
        bootstrap_pip()
    mark("python", identity())


def bootstrap_pip() -> None:
    """Install pip from its wheel, which can run itself."""
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
    wheel = f"pip-{PIP_VERSION}-py3-none-any.whl"
    page = f"{index}/pip/"
    with urllib.request.urlopen(page, timeout=60) as answer:
        links = re.findall(r'href="([^"]+)"', answer.read().decode())
    link = next((h for h in links if f"/{wheel}" in h or h.startswith(wheel)), None)
    if link is None:
        sys.exit(f"dev: {page} has no {wheel}: install python3-venv or set PIP_INDEX_URL")
    url, _, check = urllib.request.urljoin(page, link).partition("#sha256=")
    with urllib.request.urlopen(url, timeout=60) as answer:
        data = answer.read()
    if check and hashlib.sha256(data).hexdigest() != check:
        sys.exit(f"dev: {url} does not have the SHA-256 that the index states")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / wheel
        path.write_bytes(data)
        run(PYTHON, path / "pip", "install", "--quiet", "--no-index", path)


def installed(step: str, file: str) -> bool:
    """True when the packages of a requirements file are in .venv."""
    return stamped(step, (ROOT / file).read_text())


def install(step: str, file: str, notice: str = "") -> None:
    """Install the pinned packages of a requirements file, never another version of what requirements-dev.txt pins."""
    if installed(step, file):
        return
    say(f"installing {file}{notice}")
    run(PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "-c", ROOT / "requirements-dev.txt", "-r", ROOT / file)
    mark(step, (ROOT / file).read_text())


def install_torch() -> None:
    """Install PyTorch, which some tests need; without it they are skipped."""
    if os.environ.get("TORCH") == "0":
        say("TORCH=0: without PyTorch")
        return
    install("torch", "requirements-torch.txt", ": 2.3 GB to download, 4.7 GB installed; TORCH=0 leaves it out")


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Compile the extension's Go packages beside the block. What does not compile is for build_ext.py to report."""
    command = [PYTHON, ROOT / "tools" / "build_ext.py", "--compile"]
    compiler = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
        compiler.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(compiler.pid, signal.SIGKILL)
        compiler.wait()


def install_editable() -> None:
    """Make `import mori` and the `mori` command of .venv run this tree."""
    names = ("pyproject.toml", "setup.py", "python/mori/_version.py")
    want = str(ROOT) + "".join((ROOT / name).read_text() for name in names)
    if stamped("editable", want):
        return
    say("linking the package into .venv")
    run(PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--no-build-isolation", "--editable", ROOT)
    mark("editable", want)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--torch", action="store_true", help="also install PyTorch, unless TORCH=0")
    args = parser.parse_args()
    check_tools()
    make_venv()
    if not installed("requirements", "requirements-dev.txt"):
        with compiling():
            install("requirements", "requirements-dev.txt")
    if args.torch:
        install_torch()
    run(PYTHON, ROOT / "tools" / "build_ext.py")
    install_editable()


if __name__ == "__main__":
    main()
