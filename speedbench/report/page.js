// Draws every chart of the page, again where the reader's colours change. Vega's expressions are interpreted, so that
// the page may forbid `eval`.
const told = JSON.parse(document.getElementById("told").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");

async function draw() {
  const config = told.themes[dark.matches ? "dark" : "light"];
  for (const [id, spec] of Object.entries(told.charts)) {
    const options = {
      mode: "vega-lite", renderer: "svg", ast: true, actions: false, defaultStyle: false, tooltip: false, config,
    };
    const place = document.getElementById(id);
    if (place.view) place.view.finalize();
    place.view = (await vegaEmbed(place, spec, options)).view;
  }
  document.documentElement.dataset.drawn = "yes";
}

dark.addEventListener("change", draw);
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));
draw();
