# SPDX-License-Identifier: MIT
"""The page of the metrics port, in a real browser without a screen."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from test_stats import free_port

from mori.io import BackendType, IOEngine
from support import Region, cannot, finish, introduce, pattern

SIZE = 1 << 20
BIG = 2**64 - 1  # a uid that JavaScript has no number for
EVIL = "<img src=x onerror=document.title='hacked'>"


@pytest.fixture(scope="module")
def browser() -> str:
    """The path of a Chromium."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        cannot("browser", "there is no chromium to look at the page with")
    return found


def look(browser: str, url: str, home: Path, *options: str) -> str:
    """Let the page run for 5 s of its own time and return what the browser prints."""
    switches = (
        "headless=new no-sandbox disable-gpu disable-background-networking disable-component-update disable-sync"
        " no-first-run disable-dev-shm-usage hide-scrollbars window-size=1500,1000 virtual-time-budget=5000"
    )
    command = [browser, *(f"--{switch}" for switch in switches.split()), f"--user-data-dir={home}", *options, url]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


class Page(HTMLParser):
    """The rows of each table, as lists of (text, attributes), and what must not be there."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[tuple[str, dict[str, str]]]]] = {}
        self.tags: list[str] = []
        self.text = ""
        self._table = ""
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        if tag == "table":
            self._table = attributes["id"]
            self.tables[self._table] = []
        elif tag == "tr":
            self.tables[self._table].append([])
        elif tag == "td":
            self._cell = True
            self.tables[self._table][-1].append(("", attributes))

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._cell = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._cell:
            text, attributes = self.tables[self._table][-1][-1]
            self.tables[self._table][-1][-1] = (text + data, attributes)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch, make_engine: Callable[..., IOEngine]) -> Iterator[str]:
    """The address of the page of an engine that writes all the time."""
    port = free_port()
    monkeypatch.setenv("MORI_METRICS_PORT", str(port))
    prefill, decode, evil = make_engine("prefill-0"), make_engine("decode-0"), make_engine(EVIL, BackendType.TCP)
    introduce(prefill, decode, evil)
    here, there = Region(prefill, pattern(SIZE)), [Region(peer, SIZE) for peer in (decode, evil)]
    sessions = [prefill.create_session(here.desc, region.desc) for region in there]
    over = threading.Event()

    def write() -> None:
        uid = 0
        while not over.is_set():
            for session in sessions:
                finish(session.write(0, 0, SIZE, BIG - uid, tag=f"<b>req-{uid}</b>"))
            uid += 1
            over.wait(0.005)

    writer = threading.Thread(target=write)
    writer.start()
    yield f"http://127.0.0.1:{port}/"
    over.set()
    writer.join(30)
    assert not writer.is_alive()


def test_page_shows_peers_paths_and_live_throughput(browser: str, busy: str, tmp_path: Path) -> None:
    text = look(browser, busy, tmp_path, "--dump-dom")
    page = Page(text)
    assert "3 engines: prefill-0" in page.text
    rows = [row for row in page.tables["paths"] if len(row) > 9]
    assert [row[0][0] for row in rows] == [f"prefill-0 → {EVIL}", "prefill-0 → decode-0"]
    assert [row[1][0].split("open")[0] for row in rows] == ["tcp", "shm/memmove"]
    assert "no active RDMA device" in rows[1][1][0]
    for row in rows:
        fields = {
            attributes["data-field"]: (cell, attributes) for cell, attributes in row if "data-field" in attributes
        }
        shown, attributes = fields["throughput"]
        assert float(attributes["data-value"]) > 0
        assert re.fullmatch(r"[1-9][0-9.]* [kMG]?B/s", shown)
        assert int(fields["transfers"][1]["data-value"]) > 0
        assert fields["failed"][0] == "0"
    assert page.tags.count("polyline") == 2
    assert len(page.tables["slowest"]) == 17
    for row in page.tables["slowest"][1:]:
        uid, tag = row[4][0], row[5][0]
        assert f"<b>req-{BIG - int(uid)}</b>" == tag


def test_page_takes_no_html_from_names(browser: str, busy: str, tmp_path: Path) -> None:
    page = Page(look(browser, busy, tmp_path, "--dump-dom"))
    assert "img" not in page.tags
    assert EVIL in page.text
    assert "hacked" not in page.text.split("mori.io")[0]


def test_page_can_be_drawn(browser: str, busy: str, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    look(browser, busy, tmp_path / "home", f"--screenshot={picture}")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000  # a blank page of this size takes 6 kB
    kept = os.environ.get("MORI_KEEP_SCREENSHOT")
    if kept:
        shutil.copy(picture, kept)
