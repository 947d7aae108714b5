// Draws every chart of the page, again where the reader's colours or filters change. Vega's expressions are interpreted,
// so that the page may forbid `eval`.
const told = JSON.parse(document.getElementById("told").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const FACETS = ["drafter", "D", "B", "category"];
const hidden = Object.fromEntries(FACETS.map((facet) => [facet, new Set()]));

const every = (spec) => [...(spec.data?.values ?? []), ...(spec.layer ?? []).flatMap(every)];
const isShown = (row) => FACETS.every((facet) => !(facet in row && hidden[facet].has(String(row[facet]))));

function withoutHidden(channel) {
  const gone = hidden[channel.field];
  if (!gone || !channel.legend?.values) return channel;
  return {...channel, legend: {...channel.legend, values: channel.legend.values.filter((one) => !gone.has(String(one)))}};
}

function filtered(spec) {
  const made = {...spec};
  for (const [name, channel] of Object.entries(spec.encoding ?? {})) {
    made.encoding = {...made.encoding, [name]: withoutHidden(channel)};
  }
  if (spec.data?.values) made.data = {values: spec.data.values.filter(isShown)};
  if (spec.layer) made.layer = spec.layer.map(filtered).filter((layer) => layer.data?.values.length !== 0);
  return made;
}

async function draw() {
  const config = told.themes[dark.matches ? "dark" : "light"];
  for (const [id, spec] of Object.entries(told.charts)) {
    const options = {
      mode: "vega-lite", renderer: "svg", ast: true, actions: false, defaultStyle: false, tooltip: false, config,
    };
    const place = document.getElementById(id);
    const rows = every(spec).filter((row) => FACETS.some((facet) => facet in row));
    place.hidden = rows.length > 0 && !rows.some(isShown);
    if (place.view) place.view.finalize();
    place.view = place.hidden ? null : (await vegaEmbed(place, filtered(spec), options)).view;
  }
  document.documentElement.dataset.drawn = "yes";
}

function filterTables() {
  for (const table of document.querySelectorAll("table")) {
    const heads = [...(table.tHead?.rows[0]?.cells ?? [])].map((cell) => cell.textContent);
    for (const row of table.tBodies[0]?.rows ?? []) {
      row.hidden = !isShown(Object.fromEntries(heads.map((head, i) => [head, row.cells[i].textContent])));
    }
  }
}

function made(tag, properties, ...inside) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...inside);
  return element;
}

// What is hidden stands in the address, so that it can be passed on; an address that names a place of the page stays.
function filters() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const rows = Object.values(told.charts).flatMap(every);
  const said = made("output", {});
  const bar = made("form", {className: "filters", ariaLabel: "Show in charts and tables"}, "Show");
  const groups = FACETS.map((facet) => {
    const values = [...new Set(rows.filter((row) => facet in row).map((row) => String(row[facet])))];
    values.sort((a, b) => a - b || 0);
    values.filter((value) => asked.getAll(facet).includes(value)).forEach((value) => hidden[facet].add(value));
    return {facet, values, count: made("span", {})};
  }).filter(({values}) => values.length > 1);
  for (const {facet, values, count} of groups) {
    const boxes = values.map((value) =>
      made("label", {}, made("input", {type: "checkbox", name: facet, value, checked: !hidden[facet].has(value)}), value));
    const group = made("div", {role: "group", ariaLabel: facet}, ...boxes);
    bar.append(made("details", {}, made("summary", {}, `${facet}: `, count), group));
  }
  const tell = () => {
    for (const {facet, values, count} of groups) {
      count.textContent = hidden[facet].size ? `${values.length - hidden[facet].size} of ${values.length}` : "all";
    }
    const some = groups.some(({facet}) => hidden[facet].size);
    said.textContent = some ? "Some rows are hidden. Sentences and totals are of all." : "";
    filterTables();
    return draw();
  };
  let turn = tell();
  bar.addEventListener("change", ({target}) => {
    hidden[target.name][target.checked ? "delete" : "add"](target.value);
    const kept = new URLSearchParams(FACETS.flatMap((facet) => [...hidden[facet]].map((value) => [facet, value])));
    history.replaceState(null, "", `#${kept}`);
    turn = turn.then(tell);
  });
  dark.addEventListener("change", () => (turn = turn.then(draw)));
  if (groups.length) document.querySelector("h1").after(made("div", {className: "bar"}, bar, said));
}

window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));
filters();
