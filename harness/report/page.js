"use strict";
const plots = JSON.parse(document.getElementById("plots").textContent);
for (const [id, { data, layout }] of Object.entries(plots)) {
  Plotly.newPlot(id, data, layout, { displayModeBar: false, responsive: true });
}
addEventListener("beforeprint", () => Object.keys(plots).forEach((id) => Plotly.Plots.resize(id)));
