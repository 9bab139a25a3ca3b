"use strict";
const R = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const esc = (s) => String(s).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" }[c]));
const WORD = { held: "held", broken: "broken", unjudged: "not judged", skipped: "skipped" };
const SIGN = { held: "✓", broken: "✗", unjudged: "?", skipped: "–" };

/* Numbers with units, as few digits as mean something. */
function time(ms) {
  if (ms === null || ms === undefined || !isFinite(ms)) return "–";
  if (ms < 1) return ms.toFixed(2) + " ms";
  if (ms < 10) return ms.toFixed(1) + " ms";
  if (ms < 10000) return Math.round(ms).toLocaleString("en") + " ms";
  if (ms < 120000) return (ms / 1000).toFixed(1) + " s";
  return Math.floor(ms / 60000) + " min " + Math.round((ms % 60000) / 1000) + " s";
}
const count = (n) => Number(n || 0).toLocaleString("en");
function chip(verdict, word) {
  return `<span class="chip ${verdict}">${SIGN[verdict]} ${esc(word || WORD[verdict])}</span>`;
}
const RANK = { broken: 3, unjudged: 2, held: 1, skipped: 0 };
const worst = (all) => all.reduce((a, b) => (RANK[b] > RANK[a] ? b : a), "skipped");
const judged = (id) => R.drills.flatMap((d) => d.promises.filter((p) => p.id === id).map((p) => ({ d, p })));
const promiseVerdict = (id) => worst(judged(id).map((x) => x.p.verdict));
const sum = (f) => R.drills.reduce((a, d) => a + f(d), 0);
const figureOf = (d, id) => (d ? d.figures.find((f) => f.id === id) : undefined);
const named = (name) => R.drills.find((d) => d.name === name && d.verdict !== "skipped");

function tile(name, verdict, big, small) {
  return `<div class="tile ${verdict}"><div class="name"><span>${esc(name)}</span><span class="mark">${SIGN[verdict]} ${WORD[verdict]}</span></div>` +
    `<div class="big">${big}</div><div class="small soft">${small}</div></div>`;
}

/* The figure that stands for "how long were writes away": of the kill of a leader, else of what there is. */
function downtime() {
  const order = ["leader-kill", "watch"].map(named).concat(R.drills).filter((d) => d && d.runs.length);
  for (const d of order) {
    const f = figureOf(d, "rto_write_ms") || figureOf(d, "write_gap_ms");
    if (f) return { d, f };
  }
  return null;
}

function tiles() {
  const t = (k) => sum((d) => d.totals[k]);
  const down = downtime();
  const lost = promiseVerdict("rpo");
  const inSync = named("majority-loss");
  const refused = inSync ? inSync.runs.reduce((a, r) => a + r.refused, 0) : t("refused");
  const right = inSync ? inSync.runs.reduce((a, r) => a + r.refused_by_contract, 0) : null;
  const refusals = worst([promiseVerdict("refusals"), promiseVerdict("in_sync")]);
  const number = (id) => {
    const all = judged(id).filter((x) => x.p.verdict !== "unjudged");
    const of = all.reduce((a, x) => a + (parseInt(x.p.found, 10) || 0), 0);
    return all.length ? count(of) : "–";
  };
  return `<div class="tiles">` + [
    tile("Lost (RPO)", lost, number("rpo"), `of ${count(t("acknowledged"))} acknowledged messages; ${count(t("read_back"))} records read back`),
    tile("Away (RTO)", promiseVerdict("rto"), down ? time(down.f.p50_ms) : "–",
      down ? `${esc(down.d.name)}: p99 ${time(down.f.p99_ms)}, longest ${time(down.f.max_ms)}, n = ${down.f.n}` : "not measured"),
    tile("Refusals", refusals, right === null ? count(refused) : `${count(right)} / ${count(refused)}`,
      right === null ? "writes turned away for certain" : "without a majority: code 1, in-sync replicas not enough"),
    tile("Duplicates", promiseVerdict("duplicates"), number("duplicates"), "messages stored more often than allowed"),
    tile("Order", promiseVerdict("order"), number("order"), "gaps or reversals in any queue"),
    tile("Offsets", promiseVerdict("offsets"), number("offsets"), `consumer offsets behind ${count(t("commits"))} commits`),
  ].join("") + `</div>`;
}

function checklist() {
  const kill = named("leader-kill") || named("watch");
  const f = figureOf(kill, "rto_write_ms") || figureOf(kill, "write_gap_ms");
  const loss = named("majority-loss");
  const inSync = loss && loss.promises.find((p) => p.id === "in_sync");
  const refusal = figureOf(loss, "refusal_ms");
  const everywhere = (id) => {
    const all = judged(id).filter((x) => x.p.verdict === "held").map((x) => x.d.name);
    return all.length ? `checked after ${all.map(esc).join(", ")}` : "not checked";
  };
  const rows = [
    ["Kill the leader and count the downtime", f ? kill.promises.find((p) => p.id === "rto").verdict : "skipped",
      f ? `${kill.runs.length} × ${esc(kill.name)}: p50 ${time(f.p50_ms)}, p99 ${time(f.p99_ms)}, longest ${time(f.max_ms)}` : "no such drill in this report"],
    ["Kill to one of three and see IN_SYNC_REPLICAS_NOT_ENOUGH", inSync ? inSync.verdict : "skipped",
      inSync ? esc(inSync.found) + (refusal ? `; first refusal after p50 ${time(refusal.p50_ms)}, p99 ${time(refusal.p99_ms)}` : "") : "no such drill in this report"],
    ["Consumer offsets are not behind", promiseVerdict("offsets"), everywhere("offsets")],
    ["Every acknowledged message is present", promiseVerdict("rpo"), everywhere("rpo")],
  ];
  return `<h2>The checklist</h2><div class="card"><table>` +
    rows.map(([a, v, b]) => `<tr><td>${chip(v, v === "skipped" ? "not drilled" : "")}</td><td><b>${esc(a)}</b></td><td class="soft">${b}</td></tr>`).join("") + `</table></div>`;
}

function headline() {
  const say = { held: "All promises held", broken: "A promise was broken", unjudged: "Could not be judged", skipped: "Nothing was drilled" };
  const begun = new Date(R.begun_ms).toISOString().replace("T", " ").slice(0, 19) + " UTC";
  const skipped = R.drills.filter((d) => d.verdict === "skipped");
  return `<div class="top"><div><h1>Drill report</h1><p class="soft">${esc(R.target.what)}: ` +
    R.target.nodes.map((n) => `${esc(n.name)}${n.name === n.address ? "" : " (" + esc(n.address) + ")"}`).join(", ") +
    `</p><p class="soft small">${begun}, took ${time(R.took_ms)} · ${esc(R.tool)} · <code>${esc(R.command)}</code></p></div>` +
    `<div class="verdict ${R.verdict}">${SIGN[R.verdict]} ${say[R.verdict]}</div></div>` + tiles() + checklist() +
    (skipped.length ? `<p class="small soft" style="margin-top:10px">Skipped: ${skipped.map((d) => `${esc(d.name)} (${esc(d.reason)})`).join("; ")}</p>` : "");
}

let chosen = Math.max(0, R.drills.findIndex((d) => d.runs.length));
function tabs() {
  return `<div class="tabs" role="tablist">` + R.drills.map((d, i) =>
    `<button role="tab" data-drill="${i}" aria-selected="${i === chosen}"><span class="dot ${d.verdict}" title="${WORD[d.verdict]}"></span>${esc(d.name)}` +
    `<span class="small soft">${d.runs.length > 1 ? " × " + d.runs.length : d.verdict === "skipped" ? " skipped" : ""}</span></button>`).join("") + `</div>`;
}

function draw() {
  const d = R.drills[chosen];
  $("page").innerHTML = headline() + `<h2>${R.drills.length > 1 ? "The drills" : "The drill"}</h2>` + tabs() + (d ? drill(d) : "");
  for (const b of document.querySelectorAll("[data-drill]")) {
    b.onclick = () => { chosen = Number(b.dataset.drill); draw(); };
  }
  if (d && d.runs.length + d.timeline.acks.length) chart(d);
}

function drill(d) {
  const promises = d.promises.length ? `<h3>Promises</h3><table>` + d.promises.map((p) =>
    `<tr><td>${chip(p.verdict)}</td><td>${esc(p.text)}</td><td class="soft">${esc(p.found)}</td></tr>`).join("") + `</table>` : "";
  return `<div class="card"><p><b>${esc(d.name)}</b> ${chip(d.verdict)}</p><p>${esc(d.what)}</p>` +
    (d.reason ? `<p class="${d.verdict}">${esc(d.reason)}</p>` : "") +
    (d.timeline.acks.length ? timelineHtml(d) : "") + promises + figuresHtml(d) + runsHtml(d) + answersHtml(d) + `</div>`;
}
