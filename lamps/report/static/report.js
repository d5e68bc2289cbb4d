"use strict";
(() => {
  const doc = JSON.parse(document.getElementById("report-data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const W = 640, WIDE = 1100, H = 400, LEFT = 78, RIGHT = 16, TOP = 14, BOTTOM = 46;
  const column = Object.fromEntries(doc.objectives.map((o, i) => [o.name, i + 2]));
  const objective = Object.fromEntries(doc.objectives.map((o) => [o.name, o]));
  const byIndex = new Map(doc.trials.map((t) => [t.index, t]));
  let chosen = null;

  // Text always goes in as text, never as markup: labels and errors may hold anything.
  const node = (name, attributes = {}, ...children) => {
    const e = document.createElement(name);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    e.append(...children.map((c) => (c instanceof Node ? c : String(c))));
    return e;
  };
  const draw = (name, attributes = {}, ...children) => {
    const e = document.createElementNS(SVG, name);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    e.append(...children.map((c) => (c instanceof Node ? c : String(c))));
    return e;
  };
  const shown = (x) => {
    if (x === null || x === undefined) return "";
    const size = Math.abs(x);
    if (size && (size >= 1e5 || size < 1e-3)) return x.toExponential(2);
    return String(Number(x.toPrecision(4)));
  };
  const last = (t) => (t.curve.length ? t.curve[t.curve.length - 1] : null);
  const titled = (name) => `${name} [${objective[name].unit}]`;
  const pick = (label, names, value, change) => {
    const select = node("select", {}, ...names.map((n) => node("option", { value: n }, n)));
    select.value = value;
    select.addEventListener("change", () => change(select.value));
    return node("label", {}, label + " ", select);
  };

  // --- axes ---------------------------------------------------------------------------------
  const scale = (values, low, high, log) => {
    const good = values.filter((v) => v !== null && Number.isFinite(v) && (!log || v > 0));
    let a = good.length ? good.reduce((x, y) => Math.min(x, y)) : 0;
    let b = good.length ? good.reduce((x, y) => Math.max(x, y)) : 1;
    const f = log ? Math.log10 : (x) => x;
    if (a === b) { const by = a === 0 ? 1 : Math.abs(a) * 0.1; a = log ? a / 1.5 : a - by; b = log ? b * 1.5 : b + by; }
    const pad = (f(b) - f(a)) * 0.05;
    const at = (x) => low + ((f(x) - f(a) + pad) / (f(b) - f(a) + 2 * pad)) * (high - low);
    const ticks = [];
    if (log) {
      const steps = f(b) - f(a) > 1.2 ? [1] : [1, 2, 5];
      for (let e = Math.floor(f(a)) - 1; e <= Math.ceil(f(b)); e++)
        for (const s of steps) { const v = s * 10 ** e; if (v >= a / 1.2 && v <= b * 1.2) ticks.push(v); }
    } else {
      const raw = (b - a) / 5, unit = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map((s) => s * unit).find((s) => s >= raw);
      for (let v = Math.ceil(a / step) * step; v <= b + step * 1e-9; v += step) ticks.push(Number(v.toPrecision(12)));
    }
    return { at, ticks, fits: (x) => x !== null && Number.isFinite(x) && (!log || x > 0) };
  };
  const spreads = (values) => {
    const good = values.filter((v) => v !== null && Number.isFinite(v));
    return good.length > 1 && good.every((v) => v > 0) && Math.max(...good) > 20 * Math.min(...good);
  };
  const frame = (label, x, y, xTitle, yTitle, width, height) => {
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label });
    for (const v of x.ticks) {
      const p = x.at(v);
      svg.append(draw("line", { class: "grid", x1: p, x2: p, y1: TOP, y2: height - BOTTOM }));
      svg.append(draw("text", { x: p, y: height - BOTTOM + 16, "text-anchor": "middle" }, shown(v)));
    }
    for (const v of y.ticks) {
      const p = y.at(v);
      svg.append(draw("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: p, y2: p }));
      svg.append(draw("text", { x: LEFT - 6, y: p + 4, "text-anchor": "end" }, shown(v)));
    }
    svg.append(draw("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: height - BOTTOM, y2: height - BOTTOM }));
    svg.append(draw("line", { class: "axis", x1: LEFT, x2: LEFT, y1: TOP, y2: height - BOTTOM }));
    svg.append(draw("text", { x: (LEFT + width - RIGHT) / 2, y: height - 8, "text-anchor": "middle" }, xTitle));
    const middle = (TOP + height - BOTTOM) / 2;
    svg.append(draw("text", { x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` }, yTitle));
    return svg;
  };
  const path = (points) => points.map((p, i) => `${i ? "L" : "M"}${p[0].toFixed(1)} ${p[1].toFixed(1)}`).join("");
  const show = (id, ...content) => document.getElementById(id).replaceChildren(...content);

  // --- front --------------------------------------------------------------------------------
  const measured = doc.trials.filter((t) => t.curve.length);
  const names = doc.objectives.map((o) => o.name);
  const state = { y: doc.front_objectives[0], x: doc.front_objectives[1] || doc.front_objectives[0], curve: doc.front_objectives[0] };
  const drawFront = () => {
    const xs = measured.map((t) => last(t)[column[state.x]]), ys = measured.map((t) => last(t)[column[state.y]]);
    const x = scale(xs, LEFT, W - RIGHT, spreads(xs)), y = scale(ys, H - BOTTOM, TOP, spreads(ys));
    const svg = frame(`Candidates: ${state.y} against ${state.x}`, x, y, titled(state.x), titled(state.y), W, H);
    // Front members come last, so that nothing lies above them.
    for (const t of [...measured].sort((a, b) => a.front - b.front)) {
      const px = last(t)[column[state.x]], py = last(t)[column[state.y]];
      if (!x.fits(px) || !y.fits(py)) continue;
      const text = `#${t.index} ${t.label}: ${state.y} ${shown(py)}, ${state.x} ${shown(px)}${t.front ? ", on the front" : ""}${t.finished ? "" : ", unfinished"}`;
      const kind = ["dot", t.front ? "front" : "", t.finished ? "" : "unfinished", t.index === chosen ? "chosen" : ""].join(" ");
      const dot = draw("circle", { class: kind, cx: x.at(px), cy: y.at(py), r: t.front ? 6 : 4.5, tabindex: 0, role: "button", "aria-label": text, "data-trial": t.index }, draw("title", {}, text));
      dot.addEventListener("click", () => choose(t.index));
      dot.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); choose(t.index); } });
      svg.append(dot);
    }
    show("front-chart", svg);
  };
  const facts = (pairs) => node("dl", {}, ...pairs.flatMap(([k, v]) => [node("dt", {}, k), node("dd", {}, v)]));
  const choose = (index) => {
    chosen = index;
    const t = byIndex.get(index);
    const parts = [node("h3", {}, `#${t.index} ${t.label}`), node("p", {}, `${t.state}${t.front ? ", on the front" : ""}; ${t.curve.length} landmarks`)];
    const now = last(t);
    if (now) parts.push(facts(names.map((n) => [titled(n), shown(now[column[n]])])));
    if (Object.keys(t.test).length) parts.push(node("h3", {}, "Test"), facts(Object.entries(t.test).map(([k, v]) => [k, shown(v)])));
    parts.push(node("h3", {}, "Params"), facts(Object.entries(t.params).map(([k, v]) => [k, JSON.stringify(v)])));
    const rows = t.curve.map((c) => node("tr", {}, node("td", {}, shown(doc.fidelities[c[0]])), node("td", {}, shown(c[column[state.curve]])), node("td", {}, shown(c[1]))));
    parts.push(node("h3", {}, "Curve"), node("table", {}, node("thead", {}, node("tr", {}, ...["fidelity", state.curve, "seconds"].map((h) => node("th", { scope: "col" }, h)))), node("tbody", {}, ...rows)));
    show("detail", ...parts);
    for (const dot of document.querySelectorAll("#front-chart .dot")) dot.classList.toggle("chosen", Number(dot.dataset.trial) === index);
    drawCurves();
  };
  show("front-controls", pick("across", names, state.x, (v) => { state.x = v; drawFront(); }), pick("up", names, state.y, (v) => { state.y = v; drawFront(); }));
  drawFront();

  // --- progress -----------------------------------------------------------------------------
  const p = doc.progress;
  if (p.cost_s.length) {
    const height = 300, x = scale(p.cost_s, LEFT, WIDE - RIGHT, false), y = scale([0, 1], height - BOTTOM, TOP, false);
    const end = p.hypervolume.length - 1;
    const svg = frame(`Hypervolume over cost: ${shown(p.hypervolume[end])} of the final one after ${shown(p.cost_s[end])} seconds`, x, y, "seconds of landmarks", "share", WIDE, height);
    const stairs = [];
    p.cost_s.forEach((c, i) => { if (i) stairs.push([x.at(c), y.at(p.hypervolume[i - 1])]); stairs.push([x.at(c), y.at(p.hypervolume[i])]); });
    svg.append(draw("path", { class: "line front", d: path(stairs) }, draw("title", {}, "hypervolume of the finished candidates")));
    svg.append(draw("path", { class: "line dashed", d: path(p.cost_s.map((c, i) => [x.at(c), y.at(p.missing[i])])) }, draw("title", {}, "estimate of what is missing")));
    show("progress-chart", svg);
  } else show("progress-chart", node("p", {}, "There is no landmark yet."));

  // --- curves -------------------------------------------------------------------------------
  function drawCurves() {
    const c = column[state.curve], ys = measured.flatMap((t) => t.curve.map((r) => r[c])), f = doc.fidelities;
    const x = scale(f.map((_, i) => i), LEFT, WIDE - RIGHT, false), y = scale(ys, H - BOTTOM, TOP, spreads(ys));
    x.ticks = x.ticks.filter(Number.isInteger);
    const svg = frame(`Landmark curves of ${state.curve}`, { at: x.at, ticks: [] }, y, `share of the full effort (${doc.unit})`, titled(state.curve), WIDE, H);
    const every = Math.max(1, Math.ceil(f.length / 10));
    f.forEach((v, i) => { if (i % every === 0 || i === f.length - 1) svg.append(draw("text", { x: x.at(i), y: H - BOTTOM + 16, "text-anchor": "middle" }, shown(v))); });
    for (const t of [...measured].sort((a, b) => (a.index === chosen) - (b.index === chosen) || a.front - b.front)) {
      const points = t.curve.filter((r) => y.fits(r[c])).map((r) => [x.at(r[0]), y.at(r[c])]);
      if (points.length) svg.append(draw("path", { class: `line ${t.front ? "front" : ""} ${t.index === chosen ? "chosen" : ""}`, d: path(points) }, draw("title", {}, `#${t.index} ${t.label}`)));
    }
    show("curve-chart", svg);
  }
  show("curve-controls", pick("objective", names, state.curve, (v) => { state.curve = v; drawCurves(); if (chosen !== null) choose(chosen); }));
  drawCurves();

  // --- decisions ----------------------------------------------------------------------------
  if (doc.decisions.length) {
    const order = [];
    for (const d of doc.decisions) if (!order.includes(d[1])) order.push(d[1]);
    const rank = new Map(order.map((t, i) => [t, i]));
    const height = Math.min(420, 90 + 9 * order.length);
    const x = scale(doc.decisions.map((d) => d[0]), LEFT, WIDE - RIGHT, false), y = scale(order.map((_, i) => i), TOP, height - BOTTOM, false);
    const svg = frame(`${doc.decisions.length} decisions over ${order.length} candidates, in the order in which candidates were begun`, x, { at: y.at, ticks: [] }, "decision", "candidate", WIDE, height);
    const full = doc.fidelities.length - 1;
    for (const d of doc.decisions) {
      const t = byIndex.get(d[1]), bad = d[4] === "failed" || d[4] === "crashed";
      const size = 2 + 4 * (full ? d[2] / full : 1);
      svg.append(draw("circle", { class: `mark ${bad ? "bad" : t.front ? "front" : ""}`, cx: x.at(d[0]), cy: y.at(rank.get(d[1])), r: size }, draw("title", {}, `decision ${d[0]}: #${d[1]} ${t.label} to ${shown(doc.fidelities[d[2]])}, ${d[4]}${d[7] ? ` (${d[7]})` : ""}`)));
    }
    show("decision-chart", svg);
    const head = ["decision", "at [s]", "candidate", "to fidelity", "by", "state", "took [s]", "note"];
    const body = node("tbody");
    const step = 100;
    let until = 0;
    const more = node("button", { type: "button" }, "Show more");
    const grow = () => {
      for (const d of doc.decisions.slice(until, until + step))
        body.append(node("tr", {}, ...[d[0], shown(d[5]), `#${d[1]} ${byIndex.get(d[1]).label}`, shown(doc.fidelities[d[2]]), d[3], d[4], shown(d[6]), d[7]].map((v) => node("td", {}, v))));
      until += step;
      more.hidden = until >= doc.decisions.length;
    };
    more.addEventListener("click", grow);
    grow();
    show("decision-table", node("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "decisions" }, node("table", {}, node("thead", {}, node("tr", {}, ...head.map((h) => node("th", { scope: "col" }, h)))), body)), more);
  } else show("decision-chart", node("p", {}, "Nothing has been decided yet."));
})();
