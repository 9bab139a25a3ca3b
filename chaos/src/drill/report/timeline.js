/* The timeline: rates, latency, roles and answers of each node, faults; zoom by wheel, pan by drag. */
const ANSWER = ["nothing asked", "acknowledged", "refused", "unknown", "unreachable"];
const ANSWER_COLOUR = ["transparent", "var(--acks)", "var(--refused)", "var(--unknown)", "var(--unreach)"];
const ROLE_COLOUR = { leader: "var(--lead)", follower: "var(--follow)", candidate: "var(--candidate)", learner: "var(--follow)", silent: "var(--silent)" };

function timelineHtml() {
  const item = (c, t) => `<span><i style="background:${c}"></i>${t}</span>`;
  return `<h3>Timeline</h3><div class="bar"><div class="legend">` +
    item("var(--acks)", "acknowledged") + item("var(--refused)", "refused") + item("var(--unknown)", "unknown") + item("var(--unreach)", "unreachable") +
    item("var(--lead)", "leader") + item("var(--follow)", "follower") + item("var(--silent)", "no answer") + item("var(--fault)", "fault") +
    `</div><div class="tools"><button id="in" title="zoom in">+</button><button id="out" title="zoom out">−</button>` +
    `<button id="all" title="show everything">all</button></div></div>` +
    `<div id="chart"></div><p class="small soft">Wheel zooms, drag pans, a double click shows everything; a click on a repetition below goes there.</p>`;
}

function chart(d) {
  const T = d.timeline, B = T.bucket_ms, box = $("chart");
  const total = Math.max(T.length_ms, B);
  let from = 0, to = total, W = 0;
  const L = 74, RIGHT = 14, RATE = { y: 46, h: 128 }, LAT = { y: 196, h: 62 }, LANES = 282, LANE = 40;
  const H = LANES + T.nodes.length * LANE + 26;
  const peak = top();

  function top() {
    let most = 0;
    for (let i = 0; i < T.acks.length; i++) most = Math.max(most, T.acks[i] + T.refusals[i] + T.unknowns[i] + T.unreachable[i]);
    return most;
  }
  const x = (ms) => L + ((ms - from) / (to - from)) * (W - L - RIGHT);
  const at = (px) => from + ((px - L) / (W - L - RIGHT)) * (to - from);
  const clampX = (v) => Math.max(L, Math.min(W - RIGHT, v));

  /* Visible buckets, gathered so that a column is two pixels or more. */
  function columns() {
    const per = Math.max(1, Math.ceil(((to - from) / B / (W - L - RIGHT)) * 2));
    const first = Math.max(0, Math.floor(from / B / per) * per), last = Math.min(T.acks.length, Math.ceil(to / B));
    const out = [];
    for (let i = first; i < last; i += per) {
      const c = { from: i * B, to: Math.min(i + per, T.acks.length) * B, acks: 0, refusals: 0, unknowns: 0, unreachable: 0, latency: 0 };
      for (let j = i; j < Math.min(i + per, T.acks.length); j++) {
        c.acks += T.acks[j]; c.refusals += T.refusals[j]; c.unknowns += T.unknowns[j]; c.unreachable += T.unreachable[j];
        c.latency = Math.max(c.latency, T.latency_ms[j]);
      }
      const s = (c.to - c.from) / 1000;
      const parts = [c.acks, c.refusals, c.unknowns, c.unreachable];
      c.tops = parts.map((_, k) => parts.slice(0, k + 1).reduce((a, b) => a + b, 0) / s);
      out.push(c);
    }
    return out;
  }
  function nice(v) {
    const p = Math.pow(10, Math.floor(Math.log10(Math.max(v, 1))));
    return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((m) => m * p).find((m) => m >= v) || 10 * p;
  }
  function stack(cols, low, high, y, colour) {
    if (!cols.length) return "";
    let up = "", back = "";
    for (const c of cols) {
      const a = clampX(x(c.from)).toFixed(1), b = clampX(x(c.to)).toFixed(1);
      up += `L${a} ${y(high(c)).toFixed(1)}L${b} ${y(high(c)).toFixed(1)}`;
      back = `L${b} ${y(low(c)).toFixed(1)}L${a} ${y(low(c)).toFixed(1)}` + back;
    }
    return `<path d="M${(up + back).slice(1)}Z" fill="${colour}"></path>`;
  }

  function axis() {
    const wanted = (to - from) / Math.max(2, Math.floor((W - L - RIGHT) / 110));
    const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 6e4, 12e4, 3e5, 6e5, 12e5, 36e5];
    const step = steps.find((s) => s >= wanted) || 36e5;
    let out = "";
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      const label = step < 1000 ? (t / 1000).toFixed(step < 10 ? 3 : step < 100 ? 2 : 1) + " s" : t < 60000 ? t / 1000 + " s"
        : Math.floor(t / 60000) + ":" + String(Math.round((t % 60000) / 1000)).padStart(2, "0");
      out += `<line x1="${x(t)}" x2="${x(t)}" y1="${RATE.y}" y2="${H - 22}" stroke="var(--grid)"></line>` +
        `<text x="${x(t)}" y="${H - 7}" text-anchor="middle">${label}</text>`;
    }
    return out;
  }

  /* Shaded spans; a label is written where there is room for it. */
  function faults() {
    const ends = [0, 0];
    let out = "";
    for (const f of T.faults) {
      if (f.to_ms < from || f.from_ms > to) continue;
      const a = clampX(x(f.from_ms)), b = Math.max(a + 1.5, clampX(x(f.to_ms)));
      out += `<rect x="${a}" y="${RATE.y - 6}" width="${b - a}" height="${H - RATE.y - 16}" fill="var(--fault)"></rect>` +
        `<rect x="${a}" y="${RATE.y - 6}" width="${b - a}" height="3" fill="var(--fault-ink)"></rect>`;
      const words = f.label.length > 46 ? f.label.slice(0, 45) + "…" : f.label, wide = words.length * 6.6 + 14;
      const row = ends.findIndex((e) => a >= e && a + wide - 14 < W);
      const left = row < 0 && a + wide > W ? ends.findIndex((e) => W - RIGHT - wide >= e) : -1;
      if (row >= 0) {
        ends[row] = a + wide;
        out += `<text class="fault" x="${a}" y="${14 + row * 16}">${esc(words)}</text>`;
      } else if (left >= 0) {
        ends[left] = W;
        out += `<text class="fault" x="${W - RIGHT}" text-anchor="end" y="${14 + left * 16}">${esc(words)}</text>`;
      }
    }
    return out;
  }

  function lanes() {
    let out = "";
    T.nodes.forEach((n, i) => {
      const y = LANES + i * LANE;
      const short = n.name.length > 10 ? "…" + n.name.slice(-8) : n.name;
      out += `<text class="name" x="${L - 10}" y="${y + 15}" text-anchor="end">${esc(short)}</text>`;
      for (const r of n.roles) {
        if (r.to_ms < from || r.from_ms > to) continue;
        const a = clampX(x(r.from_ms)), b = clampX(x(r.to_ms));
        out += `<rect x="${a}" y="${y}" width="${Math.max(0.8, b - a)}" height="20" fill="${ROLE_COLOUR[r.role] || "var(--silent)"}"></rect>`;
        if (r.role === "leader" && r.term > 0 && b - a > 54) out += `<text class="term" x="${a + 7}" y="${y + 14}">term ${r.term}</text>`;
      }
      out += answersOf(n, y + 23);
    });
    return out;
  }
  /* Neighbouring equal answers become one rectangle. */
  function answersOf(n, y) {
    const per = Math.max(1, Math.ceil((to - from) / B / (W - L - RIGHT)));
    const first = Math.max(0, Math.floor(from / B)), last = Math.min(n.answers.length, Math.ceil(to / B));
    let out = "", begin = first, current = -1;
    const flush = (end) => {
      if (current > 0 && end > begin) {
        const a = clampX(x(begin * B)), b = clampX(x(end * B));
        out += `<rect x="${a.toFixed(1)}" y="${y}" width="${Math.max(0.8, b - a).toFixed(1)}" height="7" fill="${ANSWER_COLOUR[current]}"></rect>`;
      }
    };
    for (let i = first; i < last; i += per) {
      let worst = 0;
      for (let j = i; j < Math.min(i + per, last); j++) worst = Math.max(worst, Number(n.answers[j]));
      if (worst === 0) continue;
      if (worst !== current) { flush(i); begin = i; current = worst; }
    }
    flush(last);
    return out;
  }

  function render() {
    W = Math.max(520, box.clientWidth);
    const cols = columns();
    const max = nice(Math.max(10, ...cols.map((c) => c.tops[3])));
    const y = (v) => RATE.y + RATE.h - (v / max) * RATE.h;
    const lows = 0.1, highs = Math.max(100, ...cols.map((c) => c.latency));
    const decades = Math.ceil(Math.log10(highs / lows));
    const ly = (v) => LAT.y + LAT.h - (Math.log10(Math.max(v, lows) / lows) / decades) * LAT.h;
    let out = axis();
    for (const v of [0, max / 2, max]) {
      out += `<line x1="${L}" x2="${W - RIGHT}" y1="${y(v)}" y2="${y(v)}" stroke="var(--grid)"></line>` +
        `<text x="${L - 10}" y="${y(v) + 4}" text-anchor="end">${count(v)}/s</text>`;
    }
    out += ["--acks", "--refused", "--unknown", "--unreach"].map((colour, k) =>
      stack(cols, (c) => (k ? c.tops[k - 1] : 0), (c) => c.tops[k], y, `var(${colour})`)).join("");
    for (let k = 0; k <= decades; k += 1) {
      const v = lows * Math.pow(10, k);
      out += `<line x1="${L}" x2="${W - RIGHT}" y1="${ly(v)}" y2="${ly(v)}" stroke="var(--grid)"></line>`;
      if (k % Math.ceil(decades / 3) === 0) out += `<text x="${L - 10}" y="${ly(v) + 4}" text-anchor="end">${v < 1 ? v.toFixed(1) : count(v)} ms</text>`;
    }
    let path = "", pen = false;
    for (const c of cols) {
      if (c.latency <= 0) { pen = false; continue; }
      path += `${pen ? "L" : "M"}${clampX(x((c.from + c.to) / 2)).toFixed(1)} ${ly(c.latency).toFixed(1)}`;
      if (!pen) path += "h0.01";
      pen = true;
    }
    out += `<path d="${path || "M0 0"}" fill="none" stroke="var(--lat)" stroke-width="1.4" stroke-linecap="round"></path>`;
    out += `<text x="${L}" y="${LAT.y - 7}">slowest acknowledgement</text>` + lanes() + faults();
    out += `<line id="cross" y1="${RATE.y - 6}" y2="${H - 22}" stroke="var(--ink)" stroke-dasharray="2 3" visibility="hidden"></line>`;
    const label = `Acknowledged, refused and unknown writes over time; ${T.faults.length} faults; ${T.nodes.length} nodes`;
    box.innerHTML = `<svg width="${W}" height="${H}" viewBox="0 0 ${W} ${H}" tabindex="0" role="img" aria-label="${esc(label)}">${out}</svg>`;
    listen(box.firstChild);
  }

  function show(a, b) {
    const least = B * 10, wide = Math.max(least, Math.min(total, b - a));
    from = Math.max(0, Math.min(a, total - wide));
    to = from + wide;
    render();
  }
  const zoom = (f, mid) => show(mid - (mid - from) * f, mid + (to - mid) * f);
  let drag = null;
  function listen(svg) {
    svg.onwheel = (e) => { e.preventDefault(); zoom(e.deltaY > 0 ? 1.25 : 0.8, at(e.clientX - box.getBoundingClientRect().left)); };
    svg.onpointerdown = (e) => { drag = { x: e.clientX, from, to }; };
    svg.ondblclick = () => show(0, total);
    svg.onmousemove = (e) => hover(e);
    svg.onmouseleave = () => { $("tip").hidden = true; };
    svg.onkeydown = (e) => {
      const w = to - from, mid = (from + to) / 2;
      const act = { "+": () => zoom(0.8, mid), "-": () => zoom(1.25, mid), ArrowLeft: () => show(from - w / 8, to - w / 8),
        ArrowRight: () => show(from + w / 8, to + w / 8), Home: () => show(0, total) }[e.key];
      if (act) { e.preventDefault(); act(); box.firstChild.focus(); }
    };
  }
  window.onpointermove = (e) => {
    if (!drag) return;
    const by = ((e.clientX - drag.x) / (W - L - RIGHT)) * (drag.to - drag.from);
    show(drag.from - by, drag.to - by);
  };
  window.onpointerup = () => { drag = null; };
  window.onresize = render;

  function hover(e) {
    const tip = $("tip"), px = e.clientX - box.getBoundingClientRect().left, t = at(px);
    const i = Math.floor(t / B), cross = $("cross");
    if (drag || px < L || px > W - RIGHT || i < 0 || i >= T.acks.length) {
      tip.hidden = true; cross.setAttribute("visibility", "hidden"); return;
    }
    cross.setAttribute("x1", px); cross.setAttribute("x2", px); cross.setAttribute("visibility", "visible");
    const s = B / 1000, row = (a, b) => `<tr><td class="soft">${a}</td><td><b>${b}</b></td></tr>`;
    let out = `<b>${(t / 1000).toFixed(3)} s</b><table>` + row("acknowledged", count(Math.round(T.acks[i] / s)) + "/s") +
      row("refused", count(Math.round(T.refusals[i] / s)) + "/s") + row("unknown", count(Math.round(T.unknowns[i] / s)) + "/s") +
      row("unreachable", count(Math.round(T.unreachable[i] / s)) + "/s") +
      row("slowest acknowledgement", T.latency_ms[i] ? time(T.latency_ms[i]) : "–");
    for (const n of T.nodes) {
      const r = n.roles.find((r) => t >= r.from_ms && t < r.to_ms);
      out += row(esc(n.name), `${r ? r.role + (r.term ? ", term " + r.term : "") : "–"}; ${ANSWER[Number(n.answers[i] || 0)]}`);
    }
    for (const f of T.faults.filter((f) => t >= f.from_ms && t <= f.to_ms)) out += row("fault", esc(f.label));
    const gap = T.gaps.find((g) => t >= g.from_ms && t <= g.to_ms);
    if (gap) out += row("no acknowledgement for", time(gap.to_ms - gap.from_ms));
    tip.innerHTML = out + `</table>`;
    tip.hidden = false;
    const w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = (e.clientX + 18 + w > window.innerWidth ? e.clientX - w - 18 : e.clientX + 18) + "px";
    tip.style.top = Math.max(6, Math.min(e.clientY + 14, window.innerHeight - h - 8)) + "px";
  }

  $("in").onclick = () => zoom(0.6, (from + to) / 2);
  $("out").onclick = () => zoom(1.6, (from + to) / 2);
  $("all").onclick = () => show(0, total);
  for (const r of document.querySelectorAll("[data-run]")) {
    const go = () => {
      const run = d.runs[Number(r.dataset.run)], pad = Math.min(300, (run.to_ms - run.from_ms) / 10);
      show(run.from_ms - pad, run.to_ms + pad);
      box.scrollIntoView({ block: "center" });
    };
    r.onclick = go;
    r.onkeydown = (e) => { if (e.key === "Enter") go(); };
  }
  /* A few repetitions are readable at once; of many the first are shown, and the rest is a drag away. */
  if (d.runs.length > 8 && peak > 0) show(0, d.runs[4].to_ms); else render();
}
