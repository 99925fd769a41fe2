// Fills the table of a comparison, filters and sorts it, draws its intervals on one axis, and saves what is shown.
// All texts of others reach the page as text nodes or attributes of SVG, never as markup.
"use strict";

{
  const STEP = 60; // rows that are added at once: a filter answers as soon as the browser has laid them out
  const WIDTH = 200;
  const HEIGHT = 16;
  const MARGIN = 10; // the column is wider than its drawings by this at each side
  const data = JSON.parse(document.getElementById("rows").textContent);
  const form = document.getElementById("filters");
  const table = document.getElementById("compared");
  const body = table.tBodies[0];
  const more = document.getElementById("more");
  const hasDevices = form.elements.gpu !== undefined;
  const rows = data.rows.map((row, place) => {
    const [outcome, name, benchmark, device, before, after, ratio, low, high, smallest, cause, reason, threshold, link] = row;
    const word = data.outcomes[outcome];
    const known = {
      place, name, before, after, ratio, low, high, smallest, link, outcome: word, benchmark: data.benchmarks[benchmark],
      device: data.devices[device], cause: data.causes[cause], reason: data.reasons[reason], threshold: Number(data.thresholds[threshold]),
    };
    known.text = `${name} ${known.device} ${word} ${known.cause}`.toLowerCase();
    return known;
  });

  // --- what is drawn ---

  // Linear near no change, and logarithmic further out: a threshold can be seen beside a change a hundred times as large.
  const place = (ratio) => Math.asinh(Math.log(ratio) / Math.log(1 + data.scale));
  const at = (ratio) => WIDTH / 2 * (1 + place(ratio) / place(1 + data.limit));
  const inside = (x) => Math.min(Math.max(x, 0), WIDTH);

  const shape = (parent, name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  };

  const draw = (cell, { ratio, low, high, threshold }) => {
    if (ratio === null || !(ratio > 0)) return;
    const svg = shape(cell, "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" });
    const [left, right] = [inside(at(1 / (1 + threshold))), inside(at(1 + threshold))];
    shape(svg, "rect", { class: "band", x: left, width: right - left, y: 0, height: HEIGHT });
    shape(svg, "line", { class: "zero", x1: WIDTH / 2, x2: WIDTH / 2, y1: 0, y2: HEIGHT });
    if (low !== null && high !== null && low > 0) {
      shape(svg, "line", { class: "interval", x1: inside(at(low)), x2: inside(at(high)), y1: HEIGHT / 2, y2: HEIGHT / 2 });
    }
    const x = at(ratio);
    if (x < 0) shape(svg, "path", { class: "beyond", d: `M6 3 L0 8 L6 13 Z` });
    else if (x > WIDTH) shape(svg, "path", { class: "beyond", d: `M${WIDTH - 6} 3 L${WIDTH} 8 L${WIDTH - 6} 13 Z` });
    else shape(svg, "circle", { cx: x, cy: HEIGHT / 2, r: 3 });
  };

  // The values at the axis in the head of a table. A label without room is left out: no change and both ends come first.
  const drawTicks = (head) => {
    const svg = shape(head, "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true", class: "ticks" });
    const taken = [];
    for (const change of [0, data.limit, data.scale, 0.001, 0.01, 0.1, 1, 10]) {
      for (const ratio of change ? [1 + change, 1 / (1 + change)] : [1]) {
        const x = at(ratio);
        const label = shape(svg, "text", { y: 11, "text-anchor": "middle" });
        label.textContent = `${ratio > 1 ? "+" : ""}${Number((100 * (ratio - 1)).toPrecision(2))}\u202f%`;
        const half = label.getComputedTextLength() / 2;
        const middle = Math.min(Math.max(x, half - MARGIN), WIDTH + MARGIN - half);
        label.setAttribute("x", middle);
        if (x < 0 || x > WIDTH || taken.some(([from, to]) => middle - half < to && from < middle + half)) {
          label.remove();
          continue;
        }
        taken.push([middle - half - 1, middle + half + 1]);
        shape(svg, "line", { x1: x, x2: x, y1: 13, y2: HEIGHT });
      }
    }
  };

  const percent = (ratio) => {
    if (ratio === null) return "–";
    const text = (100 * (ratio - 1)).toFixed(1);
    return Number(text) === 0 ? "0.0 %" : `${ratio > 1 ? "+" : ""}${text} %`;
  };

  const interval = (row) => (row.low === null || row.high === null ? "" : `${percent(row.low)} to ${percent(row.high)}`);

  const cell = (line, text, name = "", kind = "") => {
    const made = document.createElement("td");
    made.textContent = text;
    if (name) made.dataset.name = name;
    if (kind) made.className = kind;
    line.append(made);
    return made;
  };

  const drawRow = (row) => {
    const line = document.createElement("tr");
    line.className = row.outcome;
    const verdict = document.createElement("span");
    verdict.className = `verdict ${row.outcome}`;
    verdict.textContent = row.outcome;
    cell(line, "", "verdict").append(verdict);
    const head = document.createElement("th");
    head.scope = "row";
    const name = document.createElement(row.link ? "a" : "span");
    if (row.link) name.href = row.link;
    name.textContent = row.name;
    head.append(name);
    if (row.reason) {
      const why = document.createElement("span");
      why.className = "why";
      why.textContent = row.reason;
      head.append(why);
    }
    line.append(head);
    if (hasDevices) cell(line, row.device, "device", "device-name");
    cell(line, row.before, "before", "number");
    cell(line, row.after, "after", "number");
    cell(line, percent(row.ratio), "change", "number");
    draw(cell(line, "", "", "drawn"), row);
    cell(line, interval(row), "interval", "span");
    cell(line, row.smallest, "smallest", "number");
    cell(line, row.cause, "cause");
    return line;
  };

  // --- what is shown ---

  const ORDERS = {
    "": (a, b) => a.place - b.place,
    slower: (a, b) => (b.ratio ?? 0) - (a.ratio ?? 0) || a.place - b.place,
    faster: (a, b) => (a.ratio ?? Infinity) - (b.ratio ?? Infinity) || a.place - b.place,
    name: (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.place - b.place),
  };
  const relevant = new Set(data.relevant);
  let shown = rows;

  const chosen = () => Object.fromEntries([...form.elements].filter((field) => field.name).map((field) => [field.name, field.value]));

  const takes = ({ text, benchmark, gpu, direction, show }) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return (row) =>
      (!benchmark || row.benchmark === benchmark) &&
      (!gpu || row.device === gpu) &&
      (!direction || (row.ratio !== null && (direction === "slower" ? row.ratio > 1 : row.ratio < 1))) &&
      (!show || (show === "relevant" ? relevant.has(row.outcome) : row.outcome === show)) &&
      words.every((word) => row.text.includes(word));
  };

  const add = () => {
    const from = body.childElementCount;
    body.append(...shown.slice(from, from + STEP).map(drawRow));
    const left = shown.length - body.childElementCount;
    more.hidden = left <= 0;
    more.textContent = `Show ${Math.min(left, STEP)} more of ${left}`;
  };

  const refresh = () => {
    const wanted = chosen();
    shown = rows.filter(takes(wanted));
    if (wanted.sort) shown.sort(ORDERS[wanted.sort]);
    body.replaceChildren();
    add();
    document.getElementById("shown").textContent = shown.length === rows.length ? `${rows.length}` : `${shown.length} of ${rows.length}`;
  };

  // The filters are kept in the fragment of the address: it works for files and on every server, and is never sent.
  const keep = () => {
    const kept = new URLSearchParams(Object.entries(chosen()).filter(([, value]) => value)).toString();
    history.replaceState(null, "", kept ? `#${kept}` : location.pathname + location.search);
  };

  const restore = () => {
    const fragment = location.hash.slice(1);
    if (fragment && !fragment.includes("=")) return; // a place on the page, such as #content
    const kept = new URLSearchParams(fragment);
    for (const field of form.elements) {
      if (!field.name) continue;
      field.value = kept.get(field.name) ?? "";
      if (field.selectedIndex === -1) field.value = ""; // not one of its options
    }
    refresh();
  };

  // --- what is saved ---

  const HEADS = ["verdict", "cause", "case", "GPU", "before", "after", "ratio", "low", "high", "smallest", "reason"];
  const values = (row) => [row.outcome, row.cause, row.name, row.device, row.before, row.after, row.ratio, row.low, row.high, row.smallest, row.reason];

  const save = (text, name, type) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  // A spreadsheet would run a text that begins like a formula: an apostrophe before it keeps it a text.
  const csvCell = (value) => {
    const text = value === null ? "" : String(value);
    const inert = typeof value === "string" && /^([\s']*[=+\-@]|[\t\r])/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
  };
  const csv = () => [HEADS, ...shown.map(values)].map((line) => line.map(csvCell).join(",")).join("\n") + "\n";

  const markdownCell = (value) =>
    (value === null ? "" : String(value)).replace(/[\\`*_{}[\]<>&#~@|]/g, (sign) => `&#${sign.charCodeAt(0)};`).replace(/\s+/g, " ");
  const markdown = () => {
    const heads = ["verdict", "cause", "case", "device", "before", "after", "change", "interval", "smallest"];
    const lines = shown.map((row) => [row.outcome, row.cause, row.name, row.device, row.before, row.after, percent(row.ratio), interval(row), row.smallest]);
    return [heads, heads.map(() => "---"), ...lines.map((line) => line.map(markdownCell))].map((line) => `| ${line.join(" | ")} |\n`).join("");
  };

  // --- begin ---

  for (const [name, options] of [["benchmark", data.benchmarks], ["gpu", data.devices]]) {
    for (const text of [...(options ?? [])].sort()) form.elements[name]?.append(new Option(text, text));
  }
  for (const drawn of document.querySelectorAll("td[data-ratio]")) {
    const read = (name) => (drawn.dataset[name] === "" ? null : Number(drawn.dataset[name]));
    draw(drawn, { ratio: read("ratio"), low: read("low"), high: read("high"), threshold: read("threshold") });
  }
  for (const head of document.querySelectorAll("th.drawn")) drawTicks(head);
  const changed = () => {
    refresh();
    keep();
  };
  form.addEventListener("input", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(changed)); // the fields are empty after the event
  more.addEventListener("click", () => {
    const first = body.childElementCount;
    add();
    body.children[first]?.querySelector("a")?.focus();
  });
  new IntersectionObserver(([seen]) => seen.isIntersecting && add(), { rootMargin: "400px" }).observe(more);
  document.getElementById("csv").addEventListener("click", () => save(csv(), "compare.csv", "text/csv"));
  document.getElementById("markdown").addEventListener("click", () => save(markdown(), "compare.md", "text/markdown"));
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !["INPUT", "SELECT"].includes(document.activeElement.tagName)) {
      event.preventDefault();
      form.elements.text.focus();
    }
  });
  addEventListener("hashchange", restore);
  restore();
}
