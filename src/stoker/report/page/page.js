for (const [id, spec] of Object.entries(JSON.parse(document.getElementById("charts").textContent))) {
  vegaEmbed(document.getElementById(id), { width: "container", ...spec }, { renderer: "svg", actions: false });
}
