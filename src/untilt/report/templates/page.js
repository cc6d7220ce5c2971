// Turns each drawing into an interactive chart. Where this does not run, the drawings stay.
(() => {
  "use strict";
  const root = document.documentElement;
  const config = JSON.parse(document.getElementById("chart-config").textContent);
  const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, config };

  const enliven = (figure) => {
    const spec = JSON.parse(figure.querySelector(":scope > script").textContent);
    const live = figure.querySelector(".live");
    // A chart that is folded away has no width: it is drawn when it is opened.
    const folded = figure.closest("details.folded:not([open])");
    if (folded) {
      folded.addEventListener("toggle", () => enliven(figure), { once: true });
      return null;
    }
    return vegaEmbed(live, spec, options).then(() => figure.classList.add("is-live"));
  };
  Promise.all(Array.from(document.querySelectorAll("figure[data-chart]"), enliven)).then(
    () => { root.dataset.charts = "ready"; },
    (error) => { root.dataset.charts = "failed"; console.error(error); },
  );

  // Paper cannot unfold anything: open what is folded while printing.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = Array.from(document.querySelectorAll("details.folded:not([open])"));
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
  });
})();
