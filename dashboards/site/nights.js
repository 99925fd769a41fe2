// Compares two nights of a series: their levels, the ratio, and the distributions of their samples.
"use strict";

// Returns what shows the comparison of two nights, and what draws it anew; `shown` returns the data of the chosen tab.
function makePair(data, shown, colors, narrow) {
  const section = document.getElementById("pair");
  if (!section) return { compare() {}, redraw() {} };
  const from = document.getElementById("from");
  const to = document.getElementById("to");
  const distribution = document.getElementById("distribution");
  let compared = null;

  for (const pick of [from, to]) {
    data.runs.forEach((run, place) => {
      const option = document.createElement("option");
      option.value = String(place);
      option.textContent = `run ${run}, ${data.started[place].slice(0, 10)}`;
      pick.prepend(option);
    });
  }
  from.value = String(data.runs.length - 2);
  to.value = String(data.runs.length - 1);
  section.hidden = false;

  const redraw = () => {
    if (!compared) return;
    const [first, second] = compared;
    document.getElementById("compared").replaceChildren(...words(shown(), first, second));
    const drawn = shown() === data || shown().key === data.tabs[0]?.key;
    distribution.hidden = !(drawn && data.samples[first] && data.samples[second]);
    if (!distribution.hidden) drawDistributions(distribution, data, first, second, colors(), narrow.matches);
  };
  const compare = (first, second) => {
    from.value = String(first);
    to.value = String(second);
    compared = [first, second];
    redraw();
  };
  document.getElementById("compare").addEventListener("click", () => compare(Number(from.value), Number(to.value)));
  return { compare, redraw };
}

function words(data, first, second) {
  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const isTime = data.metric === "time" && (!data.key || data.key === "time");
  const figures = element("dl", "", "figures");
  const figure = (name, value, small) => {
    const group = element("div");
    const written = element("dd", `${value} `);
    if (small) written.append(element("small", small));
    group.append(element("dt", name), written);
    figures.append(group);
  };
  const [a, b] = [data.level[first], data.level[second]];
  for (const place of [first, second]) {
    const level = data.level[place];
    const known = data.low[place] !== null && data.high[place] !== null;
    const interval = known ? `${amount(data, data.low[place])} to ${amount(data, data.high[place])}` : "";
    figure(`run ${data.runs[place]}, ${data.started[place].slice(0, 10)}`, level === null ? "no result" : amount(data, level), interval);
  }
  const parts = [figures];
  const judged = isTime ? data.judged.find(([base, next]) => base === first && next === second) : undefined;
  if (judged) {
    const verdict = element("dd");
    verdict.append(element("span", judged[2], `verdict ${judged[2]}`), ` ${judged[3]}`);
    const group = element("div");
    group.append(element("dt", "verdict"), verdict);
    figures.append(group);
    if (judged[4]) parts.push(element("p", judged[4], "quiet"));
  } else if (a > 0 && b > 0) {
    const ends = [data.low[first], data.high[first], data.low[second], data.high[second]];
    const known = ends.every((end) => end !== null && end > 0);
    figure("ratio of the levels", percent(b / a), known ? `${percent(ends[2] / ends[1])} to ${percent(ends[3] / ends[0])} by the ends of both intervals` : "");
    parts.push(element("p", `This ratio is no verdict.${data.judges ? " The command below judges the two runs." : ""}`, "quiet"));
  }
  const switched = data.switches.filter(([place]) => place > Math.min(first, second) && place <= Math.max(first, second));
  if (switched.length) parts.push(element("p", `The environment changed between these nights: ${switched.map(([, letter]) => letter).join(", ")}.`, "warning"));
  const excluded = [first, second].filter((place) => data.excluded.includes(place));
  if (excluded.length) parts.push(element("p", `Excluded from judging: ${excluded.map((place) => `run ${data.runs[place]}`).join(", ")}.`, "warning"));
  const links = element("p");
  for (const place of [first, second].filter((each) => data.pages.includes(each))) {
    const link = element("a", `run ${data.runs[place]} against its baseline`);
    link.href = `../compare/${data.runs[place]}.html`;
    links.append(link, " · ");
  }
  const command = element("code", `perfsvc compare ${data.runs[first]} ${data.runs[second]} --select ${data.case}`);
  links.append(command);
  parts.push(links);
  return parts;
}

function percent(ratio) {
  const change = 100 * (ratio - 1);
  return `${change > 0.05 ? "+" : ""}${Math.abs(change) < 0.05 ? "0.0" : change.toFixed(1)} %`;
}

// A step for each sample: the share of a night's samples that are not slower.
function drawDistributions(place, data, first, second, colors, narrow) {
  const traces = [[first, colors.series, "dot"], [second, colors.warn, "solid"]].map(([night, color, dash]) => {
    const times = data.samples[night].flat().sort((a, b) => a - b);
    return {
      type: "scatter", mode: "lines", name: `run ${data.runs[night]}`, x: times, y: times.map((_, at) => (100 * (at + 1)) / times.length),
      line: { shape: "hv", color, dash, width: 2 }, hovertemplate: `run ${data.runs[night]}: %{y:.0f} % within %{x} ${data.suffix}<extra></extra>`,
    };
  });
  const layout = {
    ...baseLayout(colors, narrow), dragmode: false, showlegend: true, legend: { orientation: "h", y: 1.15, x: 0 },
    xaxis: { gridcolor: colors.line, zeroline: false, ticksuffix: ` ${data.suffix}`, nticks: narrow ? 4 : 8, fixedrange: true },
    yaxis: { automargin: true, gridcolor: colors.line, zeroline: false, ticksuffix: " %", range: [0, 101], nticks: 5, fixedrange: true },
  };
  Plotly.react(place, traces, layout, CONFIG);
}
