/* Tables: figures over all repetitions, the repetitions, the answers. */
function figuresHtml(d) {
  if (!d.figures.length) return "";
  return `<h3>Measured</h3><table><thead><tr><th>quantity</th><th class="n">n</th><th class="n">p50</th><th class="n">p99</th><th class="n">max</th><th>goal</th><th>all repetitions</th></tr></thead><tbody>` +
    d.figures.map((f) => `<tr><td>${esc(f.text)}</td><td class="n">${count(f.n)}</td><td class="n">${time(f.p50_ms)}</td><td class="n">${time(f.p99_ms)}</td>` +
      `<td class="n">${time(f.max_ms)}</td><td>${f.goal ? chip(f.goal.met ? "held" : "unjudged", `p99 ≤ ${time(f.goal.p99_ms)} ${f.goal.met ? "met" : "missed"}`) : ""}</td>` +
      `<td>${strip(d, f)}</td></tr>`).join("") + `</tbody></table>`;
}

/* One dot for each repetition, from zero to the longest; a goal is a line. */
function strip(d, f) {
  const all = d.runs.map((r) => r[f.id]).filter((v) => v !== null && v !== undefined);
  const goal = f.goal ? f.goal.p99_ms : 0, max = Math.max(f.max_ms, goal, 0.001) * 1.04, W = 230;
  const x = (v) => 4 + (v / max) * (W - 8);
  const dots = all.map((v, i) => `<circle cx="${x(v).toFixed(1)}" cy="${6 + ((i * 7) % 12)}" r="2.4" fill="var(--lead)" fill-opacity="0.55"></circle>`).join("");
  const line = goal ? `<line x1="${x(goal)}" x2="${x(goal)}" y1="1" y2="23" stroke="var(--ok)" stroke-width="1.5" stroke-dasharray="3 2"></line>` : "";
  return `<svg width="${W}" height="24" viewBox="0 0 ${W} 24" role="img" aria-label="${all.length} values from 0 to ${time(f.max_ms)}">` +
    `<line x1="4" x2="${W - 4}" y1="12" y2="12" stroke="var(--line)"></line>${dots}${line}</svg>`;
}

const RUN_COLUMNS = [["refusal_ms", "first refusal"], ["rto_write_ms", "first write (RTO)"], ["rto_openchaos_ms", "OpenChaos RTO"],
  ["rto_read_ms", "first read"], ["write_gap_ms", "longest gap"], ["rejoin_ms", "all level"]];
function runsHtml(d) {
  if (!d.runs.length) return "";
  const shown = RUN_COLUMNS.filter(([id]) => d.runs.some((r) => r[id] !== null && r[id] !== undefined));
  const problem = d.runs.some((r) => r.problem);
  return `<h3>Repetitions</h3><div class="scroll"><table><thead><tr><th class="n">#</th><th>hit</th>` + shown.map(([, t]) => `<th class="n">${t}</th>`).join("") +
    `<th class="n">acknowledged</th><th class="n">refused</th><th class="n">unknown</th><th class="n">unreachable</th>${problem ? "<th>problem</th>" : ""}</tr></thead><tbody>` +
    d.runs.map((r, i) => `<tr data-run="${i}" tabindex="0"><td class="n">${r.number}</td><td>${esc(r.hit)}</td>` +
      shown.map(([id]) => `<td class="n">${time(r[id])}</td>`).join("") +
      `<td class="n">${count(r.acknowledged)}</td><td class="n">${count(r.refused)}</td><td class="n">${count(r.unknown)}</td><td class="n">${count(r.unreachable)}</td>` +
      (problem ? `<td class="broken">${esc(r.problem || "")}</td>` : "") + `</tr>`).join("") + `</tbody></table></div>`;
}

function answersHtml(d) {
  const t = d.totals;
  const all = d.answers.length ? `<table><tbody>` + d.answers.slice(0, 12).map((a) =>
    `<tr><td class="n">${count(a.count)} ×</td><td>code ${a.code}</td><td><code>${esc(a.remark)}</code></td></tr>`).join("") + `</tbody></table>` : "";
  return `<h3>Answers other than success, to the probe</h3>` + (all || `<p class="soft">none</p>`) +
    `<p class="small soft">Probe and ordinary clients together: ${count(t.acknowledged)} acknowledged, ${count(t.refused)} refused, ` +
    `${count(t.unknown)} unknown, of which ${count(t.unknown_found)} were found stored.</p>`;
}

draw();
