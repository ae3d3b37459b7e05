// SPDX-License-Identifier: MIT
// Draws /stats.json each second. Names come from strangers: they are set as text, never as HTML.
"use strict";

const SECONDS = 60; // of the small graphs
const history = new Map(); // of a path: the throughput of its reads and writes, newest last
let pageTime = 0;

// make returns an element with classes, text and children.
function make(tag, classes = "", ...children) {
  const e = document.createElement(tag);
  e.className = classes;
  e.append(...children.map((c) => (typeof c === "number" ? String(c) : c)));
  return e;
}

function draw(tag, attributes) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  return e;
}

// scaled writes v with three digits and the first unit that keeps it below the step.
function scaled(v, step, units) {
  let i = 0;
  while (v >= step * 0.9995 && i < units.length - 1) {
    v /= step;
    i++;
  }
  const digits = i === 0 && Number.isInteger(v) ? 0 : v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2;
  return `${v.toFixed(digits)} ${units[i]}`;
}

const bytes = (n) => scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
const rate = (n) => scaled(n, 1000, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]);
const count = (n) => n.toLocaleString("en-US");

function duration(us) {
  if (us < 1e6) return scaled(us, 1000, ["µs", "ms", "s"]);
  const s = us / 1e6;
  if (s < 100) return `${s.toFixed(s < 10 ? 2 : 1)} s`;
  if (s < 6000) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

// cell is a number in a table; zero is pale, and a bad one red.
function cell(text, value, field, bad = false) {
  const td = make("td", `num ${value === 0 ? "zero" : bad ? "bad" : ""}`, text);
  td.dataset.field = field;
  td.dataset.value = value;
  return td;
}

function tile(label, value, classes = "") {
  return make("div", "tile", make("b", classes, value), make("span", "", label));
}

function remember(key, path) {
  const seen = history.get(key) ?? { read: [], write: [] };
  for (const kind of ["read", "write"]) {
    seen[kind].push(path[kind].bytes_per_s_1s);
    if (seen[kind].length > SECONDS) seen[kind].shift();
  }
  history.set(key, seen);
  return seen;
}

function graph(seen) {
  const [w, h] = [220, 40];
  const svg = draw("svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": "throughput of the last minute" });
  const most = Math.max(1, ...seen.read, ...seen.write);
  svg.append(draw("line", { class: "base", x1: 0, y1: h - 0.5, x2: w, y2: h - 0.5 }));
  for (const kind of ["read", "write"]) {
    const all = seen[kind];
    if (all.every((v) => v === 0)) continue;
    const x = (i) => w - ((all.length - 1 - i) * w) / (SECONDS - 1);
    const line = all.map((v, i) => `${x(i).toFixed(1)},${(h - 1 - (v / most) * (h - 4)).toFixed(1)}`).join(" ");
    svg.append(draw("polygon", { class: `${kind} area`, points: `${x(0)},${h} ${line} ${w},${h}` }));
    svg.append(draw("polyline", { class: kind, points: line }));
  }
  return svg;
}

function kindCells(kind, o) {
  const latency = (v) => (o.latency.count === 0 ? "–" : duration(v));
  return [
    make("td", kind, kind),
    cell(rate(o.bytes_per_s_1s), o.bytes_per_s_1s, "throughput"),
    cell(count(o.transfers), o.transfers, "transfers"),
    cell(bytes(o.bytes), o.bytes, "bytes"),
    cell(count(o.in_flight), o.in_flight, "in_flight"),
    cell(latency(o.latency.p50_us), o.latency.p50_us, "p50_us"),
    cell(latency(o.latency.p99_us), o.latency.p99_us, "p99_us"),
    failures(o),
    cell(count(o.replays), o.replays, "replays"),
  ];
}

function failures(o) {
  const td = cell(count(o.failed), o.failed, "failed", true);
  td.title = Object.entries(o.failures).map(([code, n]) => `${code}: ${n}`).concat(o.canceled ? [`canceled: ${o.canceled}`] : []).join("\n");
  return td;
}

function pathRows(engine, peer, path) {
  const key = JSON.stringify([engine.key, peer.key, path.path]);
  const who = make("td", "names", make("span", "soft", `${engine.key} → `), make("b", "", peer.key));
  who.title = `${engine.key} → ${peer.key}`;
  if (!peer.known) who.append(make("span", "mark soft", "gone"));
  const how = make("td", "", make("b", "", path.path), make("span", `mark ${path.open ? "good" : "soft"}`, path.open ? "open" : "closed"));
  for (const reason of path.reasons) how.append(make("div", "why", reason));
  const seen = remember(key, path);
  const live = make("td", "", graph(seen), make("div", "why", `most: ${rate(Math.max(...seen.read, ...seen.write))}`));
  for (const td of [who, how, live]) td.rowSpan = 2;
  const first = make("tr", "first", who, how, live, ...kindCells("write", path.write));
  const second = make("tr", "second", ...kindCells("read", path.read));
  first.dataset.peer = peer.key;
  first.dataset.path = path.path;
  return [first, second];
}

// peerRow is a peer to which no path was opened.
function peerRow(engine, peer) {
  const who = make("td", "names", make("span", "soft", `${engine.key} → `), make("b", "", peer.key));
  return [make("tr", "", who, wide(make("td", "soft", "no path yet: the first session or transfer opens one"), 11))];
}

function wide(td, columns) {
  td.colSpan = columns;
  return td;
}

function transferTable(table, all, none) {
  const body = table.querySelector("tbody");
  table.querySelector("thead")?.remove();
  if (all.length === 0) {
    body.replaceChildren(make("tr", "", make("td", "note", none)));
    return;
  }
  const names = [["took", 1], ["kind"], ["engine → peer"], ["path"], ["uid", 1], ["tag"], ["done", 1], ["of", 1], ["ops", 1], ["replays", 1], ["first op", 1], ["last op", 1], ["state"], ["began"]];
  const head = make("tr", "", ...names.map(([name, number]) => make("th", number ? "num" : "", name)));
  table.prepend(make("thead", "", head));
  body.replaceChildren(...all.map(transferRow));
}

function transferRow({ engine, t }) {
  const state = t.stage === "ended" ? t.code : t.stage;
  const who = make("td", "names", make("span", "soft", `${engine} → `), t.peer);
  const tag = make("td", "tag", t.tag);
  tag.title = t.tag;
  const began = new Date(t.start_s * 1000).toISOString().slice(11, 23);
  const since = (us) => make("td", `num ${us === 0 ? "zero" : ""}`, us === 0 ? "–" : duration(us));
  return make(
    "tr", "", make("td", "num", make("b", "", duration(t.took_us))), make("td", t.kind, t.kind), who, make("td", "", t.path), make("td", "num", String(t.uid)), tag,
    make("td", "num", bytes(t.bytes_done)), make("td", "num", bytes(t.bytes)), cell(count(t.ops), t.ops, "ops"), cell(count(t.replays), t.replays, "replays", true),
    since(t.first_op_us), since(t.last_op_us), make("td", state === "SUCCESS" ? "soft" : t.stage === "ended" ? "bad" : "warn", state), make("td", "soft", `${began} UTC`),
  );
}

function sums(engines) {
  const total = (f) => engines.reduce((sum, e) => sum + f(e), 0);
  const perPath = (f) => total((e) => e.peers.reduce((a, p) => a + p.paths.reduce((b, q) => b + f(q), 0), 0));
  const failed = total((e) => e.totals.failed);
  const replays = total((e) => e.totals.replays);
  const refused = total((e) => e.totals.refused);
  return [
    tile("written now", rate(perPath((q) => q.write.bytes_per_s_1s)), "write"),
    tile("read now", rate(perPath((q) => q.read.bytes_per_s_1s)), "read"),
    tile("transfers done", count(total((e) => e.totals.reads + e.totals.writes))),
    tile("moved", bytes(total((e) => e.totals.read_bytes + e.totals.write_bytes))),
    tile("in flight", count(total((e) => e.in_flight))),
    tile("failed", count(failed), failed ? "bad" : ""),
    tile("refused", count(refused), refused ? "bad" : ""),
    tile("replays", count(replays), replays ? "warn" : ""),
    tile("regions", count(total((e) => e.regions))),
  ];
}

function show(engines) {
  document.getElementById("tiles").replaceChildren(...sums(engines));
  const rows = engines.flatMap((e) => e.peers.flatMap((p) => (p.paths.length ? p.paths.flatMap((q) => pathRows(e, p, q)) : peerRow(e, p))));
  if (rows.length === 0) {
    rows.push(make("tr", "", wide(make("td", "note", "No peer is registered yet."), 12)));
  }
  document.querySelector("#paths tbody").replaceChildren(...rows);
  for (const [id, none] of [["stuck", "None."], ["slowest", "No transfer has ended yet."]]) {
    const all = engines.flatMap((e) => e[id].map((t) => ({ engine: e.key, t })));
    all.sort((a, b) => b.t.took_us - a.t.took_us);
    transferTable(document.getElementById(id), all.slice(0, 16), none);
  }
  const names = engines.map((e) => `${e.key} (up ${duration(e.uptime_s * 1e6)})`).slice(0, 8);
  if (engines.length > names.length) names.push(`and ${engines.length - names.length} more`);
  document.title = `mori.io: ${engines.map((e) => e.key).join(", ").slice(0, 60)}`;
  say(`${engines.length} engine${engines.length === 1 ? "" : "s"}: ${names.join(", ")}`);
}

function say(text, lost = false) {
  const state = document.getElementById("state");
  state.textContent = text;
  state.className = lost ? "lost" : "";
}

// parse keeps uids as they are written: a number has 53 bits for their 64.
function parse(text) {
  return JSON.parse(text, (key, value, context) => (key === "uid" && context ? context.source : value));
}

async function poll() {
  try {
    const answer = await fetch("stats.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(`answer ${answer.status}`);
    show(parse(await answer.text()).engines);
    pageTime = Date.now();
  } catch (err) {
    const ago = pageTime ? `; figures are ${Math.round((Date.now() - pageTime) / 1000)} s old` : "";
    say(`no answer from the process: ${err.message}${ago}`, true);
  }
  setTimeout(poll, 1000);
}

poll();
