// The charts of a series. Text written by people or programs goes into the page as text, never into plotly.js, which
// would interpret its markup.
"use strict";

// plotly.js adds an inline style sheet for its maps, which the page's security policy refuses and no chart here needs.
// While plotly.js loads, its sheets stay empty; the policy allows the empty sheet, and scripts may add rules to it.
const makeElement = document.createElement;
document.createElement = function (name, ...rest) {
  const made = makeElement.call(document, name, ...rest);
  if (String(name).toLowerCase() === "style") Object.defineProperty(made, "textContent", { set() {} });
  return made;
};

window.addEventListener("DOMContentLoaded", () => {
  document.createElement = makeElement;
  const source = document.getElementById("data");
  if (source && window.Plotly) draw(JSON.parse(source.textContent));
});

function draw(data) {
  const chart = document.getElementById("history");
  const taken = document.getElementById("taken");
  const pick = document.getElementById("night");
  const summary = document.getElementById("summary");
  const narrow = window.matchMedia("(max-width: 760px)");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const x = axisOf(data);
  const last = data.runs.length - 1;
  let chosen = last;
  let shown = data; // the data of the chosen tab

  const pair = makePair(data, () => shown, () => colorsOf(chart), narrow);
  const redraw = () => {
    const colors = colorsOf(chart);
    Plotly.react(chart, historyTraces(shown, x, colors, chosen), historyLayout(shown, x, colors, narrow.matches), CONFIG);
    if (taken) drawSamples(taken, data, Number(pick.value), colors, narrow.matches);
    pair.redraw();
  };
  const choose = (place) => {
    chosen = Math.max(0, Math.min(last, place));
    summary.textContent = sentence(shown, chosen);
    if (pick && data.samples[chosen]) pick.value = String(chosen);
    redraw();
  };

  if (pick) {
    for (const place of Object.keys(data.samples).map(Number).sort((a, b) => b - a)) {
      const option = document.createElement("option");
      option.value = String(place);
      option.textContent = `run ${data.runs[place]}, ${data.started[place].slice(0, 16)}`;
      pick.append(option);
    }
    pick.addEventListener("change", () => choose(Number(pick.value)));
  }
  choose(last);
  makeTabs(data, (tab) => {
    shown = tab;
    choose(chosen);
  });
  chart.on("plotly_relayout", (event) => {
    const within = nightsWithin(x, event["xaxis.range[0]"], event["xaxis.range[1]"]);
    if (within.length > 1) pair.compare(within[0], within[within.length - 1]);
  });
  chart.on("plotly_click", (event) => choose(event.points[0].customdata));
  chart.on("plotly_hover", (event) => { summary.textContent = sentence(shown, event.points[0].customdata); });
  chart.on("plotly_unhover", () => { summary.textContent = sentence(shown, chosen); });
  chart.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: chosen - 1, ArrowRight: chosen + 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(to);
  });
  dark.addEventListener("change", redraw);
  narrow.addEventListener("change", redraw);
}

const CONFIG = { displayModeBar: false, responsive: true };

// Dates if they are in the order of the runs and span two days, else run numbers: clocks jump, and tests are fast.
function axisOf(data) {
  const times = data.started.map((text) => Date.parse(`${text.replace(" ", "T")}Z`));
  const ordered = times.every((time, place) => place === 0 || time > times[place - 1]);
  const days = (times[times.length - 1] - times[0]) / 864e5;
  return ordered && days >= 2 ? { type: "date", values: data.started } : { type: "linear", values: data.runs };
}

// The nights in the part of the chart that a user has dragged over; none after a double click shows the whole chart.
function nightsWithin(x, begin, end) {
  if (begin === undefined || end === undefined) return [];
  const position = (value) => (x.type === "date" ? Date.parse(`${String(value).replace(" ", "T")}Z`) : Number(value));
  const [low, high] = [position(begin), position(end)];
  return x.values.map(position).flatMap((value, place) => (low <= value && value <= high ? [place] : []));
}

function colorsOf(chart) {
  const style = getComputedStyle(chart);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  return Object.fromEntries(["ink", "quiet", "line", "series", "level", "alarm", "good", "warn"].map((name) => [name, color(name)]));
}

function amount(data, value) {
  return `${Number(value.toPrecision(4))} ${data.unit}`.trim();
}

// Describes a night in words, for the mouse pointer and for screen readers.
function sentence(data, place) {
  const number = (value) => amount(data, value);
  const parts = [`run ${data.runs[place]}`, `${data.started[place].slice(0, 16)} UTC`];
  if (data.commits[place]) parts.push(data.commits[place]);
  if (data.level[place] !== null) parts.push(number(data.level[place]));
  if (data.low[place] !== null && data.high[place] !== null) parts.push(`${number(data.low[place])} to ${number(data.high[place])}`);
  if (data.texts[place]) parts.push(data.texts[place]);
  for (const [at, finding] of data.findings) if (at === place) parts.push(`finding ${finding}`);
  return parts.join(" · ");
}

function historyTraces(data, x, colors, chosen) {
  const places = data.runs.map((_, place) => place);
  const hollow = new Set([...data.dirty, ...data.excluded]);
  const crossed = new Set(data.excluded);
  const known = places.filter((place) => data.level[place] !== null);
  const seen = data.level.filter((value) => value !== null);
  const floor = seen.length ? Math.min(...seen) : 0;
  const top = seen.length ? Math.max(...seen) : 1;
  const at = (list) => list.map((place) => x.values[place]);
  const level = (place) => data.level[place];
  const dots = known.length > 150 ? 4 : 6;
  return [
    {
      type: "scatter", mode: "markers", name: "nights", x: at(known), y: known.map(level), customdata: known, hoverinfo: "none",
      error_y: {
        type: "data", symmetric: false, thickness: 1, width: 0, color: faded(colors.series, 0.35),
        array: known.map((place) => (data.high[place] ?? level(place)) - level(place)),
        arrayminus: known.map((place) => level(place) - (data.low[place] ?? level(place))),
      },
      marker: {
        size: known.map((place) => (crossed.has(place) ? dots + 3 : dots)), symbol: known.map((place) => (crossed.has(place) ? "circle-x-open" : "circle")),
        color: known.map((place) => (hollow.has(place) && !crossed.has(place) ? "rgba(0,0,0,0)" : colors.series)),
        line: { width: known.map((place) => (hollow.has(place) ? 1 : 0)), color: colors.series },
      },
    },
    {
      type: "scatter", mode: "lines", name: "levels", hoverinfo: "skip", line: { color: colors.level, width: 1.5 },
      x: data.levels.flatMap(([first, end]) => [x.values[first], x.values[end], null]),
      y: data.levels.flatMap(([, , value]) => [value, value, null]),
    },
    {
      type: "scatter", mode: "markers", name: "failed", x: at(data.failed), y: data.failed.map(() => floor),
      customdata: data.failed, hoverinfo: "none", marker: { symbol: "x-thin", size: 8, line: { width: 2, color: colors.alarm } },
    },
    {
      type: "scatter", mode: "markers", name: "findings", x: at(data.findings.map(([place]) => place)),
      y: data.findings.map(() => top + (top - floor || top) * 0.06), customdata: data.findings.map(([place]) => place), hoverinfo: "none",
      marker: { symbol: "triangle-down", size: 10, color: data.findings.map(([, , way]) => (way === "slower" ? colors.alarm : colors.good)) },
    },
    {
      type: "scatter", mode: "markers", name: "chosen", hoverinfo: "skip", x: at([chosen]), y: [data.level[chosen] ?? floor],
      marker: { symbol: "circle-open", size: 12, color: colors.level, line: { width: 2, color: colors.level } },
    },
  ];
}

function baseLayout(colors, narrow) {
  return {
    margin: { l: narrow ? 44 : 56, r: 8, t: 14, b: 34 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: colors.quiet },
    showlegend: false, hovermode: "closest", hoverdistance: 30, dragmode: narrow ? false : "zoom",
  };
}

// A step between ticks that never falls between two runs, for at most so many of them.
function wholeStep(values, ticks) {
  const span = Math.max(...values) - Math.min(...values);
  const size = 10 ** Math.floor(Math.log10(Math.max(1, span / ticks)));
  return [1, 2, 5, 10].map((step) => step * size).find((step) => span / step <= ticks);
}

function historyLayout(data, x, colors, narrow) {
  const line = { color: colors.quiet, width: 1, dash: "dot" };
  return {
    ...baseLayout(colors, narrow),
    xaxis: { uirevision: "runs", type: x.type, showgrid: false, zeroline: false, linecolor: colors.line, showline: true, nticks: narrow ? 4 : 10, ...(x.type === "date" ? {} : { title: { text: "run" }, tickformat: "d", dtick: wholeStep(x.values, narrow ? 4 : 10) }) },
    yaxis: { uirevision: data.key ?? "", rangemode: data.levels.length ? "normal" : "tozero", automargin: true, gridcolor: colors.line, zeroline: false, ticksuffix: data.suffix ? ` ${data.suffix}` : "", nticks: 6, fixedrange: narrow },
    shapes: data.switches.map(([place]) => ({ type: "line", xref: "x", yref: "paper", x0: x.values[place], x1: x.values[place], y0: 0, y1: 1, line })),
    annotations: data.switches.map(([place, letter]) => ({ x: x.values[place], y: 1, xref: "x", yref: "paper", yanchor: "bottom", showarrow: false, text: letter, font: { color: colors.quiet } })),
  };
}

function drawSamples(taken, data, place, colors, narrow) {
  const shades = [colors.series, colors.warn, colors.good];
  const traces = data.samples[place].map((times, replica) => ({
    type: "scatter", mode: "markers", x: times.map((_, sample) => sample + 1), y: times, hovertemplate: `replica ${replica + 1}, sample %{x}: %{y} ${data.unit}<extra></extra>`,
    marker: { size: 4, color: shades[replica % shades.length], opacity: 0.75 },
  }));
  const layout = {
    ...baseLayout(colors, narrow),
    xaxis: { title: { text: "sample" }, showgrid: false, zeroline: false, linecolor: colors.line, showline: true, nticks: narrow ? 5 : 10 },
    yaxis: { automargin: true, gridcolor: colors.line, zeroline: false, ticksuffix: ` ${data.unit}`, nticks: 5, fixedrange: narrow },
    margin: { ...baseLayout(colors, narrow).margin, b: 40 },
  };
  Plotly.react(taken, traces, layout, CONFIG);
  const legend = document.getElementById("replicas");
  legend.replaceChildren(...traces.map((_, replica) => {
    const item = document.createElement("span");
    item.className = `r${replica % shades.length}`;
    item.textContent = `replica ${replica + 1}`;
    return item;
  }));
}

function faded(color, share) {
  const hex = color.replace("#", "");
  const [red, green, blue] = [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${red},${green},${blue},${share})`;
}
