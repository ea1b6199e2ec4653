"use strict";
// The theme: the system's until the button is pressed.
document.getElementById("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
});

function seconds(value) {
  if (value >= 1) return (value < 100 ? value.toPrecision(3) : value.toFixed(0)) + " s";
  if (value === 0) return "0 s";
  return value >= 1e-3 ? (value * 1e3).toPrecision(3) + " ms" : (value * 1e6).toPrecision(3) + " µs";
}
function shown(value, unit) {
  if (value === null) return "–";
  if (unit === "s") return seconds(value);
  return Number(value.toPrecision(4)) + (unit ? " " + unit : "");
}

// A pointer over a chart shows the nearest point of every series in its legend.
for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const chart = JSON.parse(figure.dataset.chart);
  const svg = figure.querySelector("svg"), cursor = figure.querySelector(".cursor");
  const values = figure.querySelectorAll(".legend b"), where = figure.querySelector(".where");
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * chart.width;
    let place = null;
    chart.series.forEach((series, index) => {
      let best = -1, distance = Infinity;
      series.px.forEach((px, i) => { const d = Math.abs(px - x); if (d < distance) { distance = d; best = i; } });
      if (best < 0) return;
      values[index].textContent = shown(series.y[best], chart.yUnit);
      if (place === null || distance < place.distance) place = { distance, px: series.px[best], x: series.x[best] };
    });
    if (place === null) return;
    cursor.setAttribute("x1", place.px); cursor.setAttribute("x2", place.px);
    cursor.style.visibility = "visible";
    where.textContent = "at " + shown(place.x, chart.xUnit);
  });
  svg.addEventListener("pointerleave", () => {
    cursor.style.visibility = "hidden";
    where.textContent = "";
    for (const value of values) value.textContent = "";
  });
}

// The heat map of length groups, for the metric and percentile that are chosen.
const heat = document.getElementById("heat");
if (heat) {
  const data = JSON.parse(heat.dataset.groups);
  const metric = document.getElementById("metric"), percentile = document.getElementById("percentile");
  const draw = () => {
    const cells = new Map(data.cells.map((cell) => [cell.input + "|" + cell.output, cell]));
    const of = (cell) => cell.metrics[metric.value][percentile.value];
    const logs = data.cells.map(of).filter((v) => v !== null && v > 0).map(Math.log);
    const low = Math.min(...logs), high = Math.max(...logs);
    const table = document.createElement("table");
    const header = table.insertRow();
    for (const name of ["tokens in \\ out", ...data.outputs]) {
      const th = document.createElement("th"); th.textContent = name; header.append(th);
      if (name !== "tokens in \\ out") th.className = "heat";
    }
    for (const input of data.inputs) {
      const row = table.insertRow();
      const th = document.createElement("th"); th.textContent = input; row.append(th);
      for (const output of data.outputs) {
        const td = row.insertCell(), cell = cells.get(input + "|" + output);
        td.className = "heat";
        if (!cell) { td.textContent = "·"; td.classList.add("withheld"); continue; }
        const value = of(cell);
        td.textContent = value === null ? "withheld" : seconds(value);
        td.title = "n = " + cell.n;
        if (value === null) { td.classList.add("withheld"); continue; }
        const share = high > low ? (Math.log(value) - low) / (high - low) : 0;
        td.style.background = "rgba(var(--heat), " + (0.06 + 0.44 * share).toFixed(3) + ")";
      }
    }
    heat.replaceChildren(table);
  };
  // A short run may carry no P95 in any group.
  if (data.cells.every((cell) => cell.metrics[metric.value].P95 === null)) percentile.value = "P50";
  metric.addEventListener("change", draw);
  percentile.addEventListener("change", draw);
  draw();
}
