/* Three download buttons above every chart: PNG and SVG use Plotly's own, hidden button; CSV holds the visible points:
   those of the visible curves within the zoomed axes. */
(() => {
  if (window.scalebookChartFiles) return;
  window.scalebookChartFiles = true;
  const named = (plot) => (plot.getAttribute("aria-label") || plot.closest("[aria-label]")?.getAttribute("aria-label") ||
    plot._fullLayout?.title?.text || "chart").replace(/[^\w-]+/g, "-").slice(0, 80);
  const picture = (plot, format) => {
    const options = plot._context.toImageButtonOptions, paper = plot.layout.paper_bgcolor;
    plot._context.toImageButtonOptions = { ...options, format, filename: named(plot), scale: format === "png" ? 2 : 1 };
    plot.layout.paper_bgcolor = getComputedStyle(document.querySelector(".stApp")).backgroundColor;
    plot.querySelector(".modebar-btn[data-title^='Download']").click(); // takes the layout as it is now
    plot.layout.paper_bgcolor = paper;
    plot._context.toImageButtonOptions = options;
  };
  const quoted = (value) => {
    const text = String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const seen = (axis, value) => {
    if (!axis || typeof value !== "number" || !["linear", "log"].includes(axis.type)) return true;
    const [low, high] = [...axis.range].sort((a, b) => a - b);
    const at = axis.type === "log" ? Math.log10(value) : value;
    return at >= low && at <= high;
  };
  const rows = (plot) => {
    const { xaxis, yaxis } = plot._fullLayout;
    const title = (axis, other) => axis?.title?.text || other;
    const found = [["series", title(xaxis, "x"), title(yaxis, plot._fullLayout.title?.text || "y")]];
    for (const trace of plot._fullData) {
      if (trace.visible !== true || !trace.x || !trace.y || trace.fill === "toself") continue;
      const name = trace.opacity < 1 ? `${trace.name} (as logged)` : trace.name;
      if (trace.z?.[0]?.length) {
        found[0][3] = "value";
        trace.z.forEach((line, j) => Array.from(line).forEach((z, i) => found.push([name, trace.x[i], trace.y[j], z])));
        continue;
      }
      Array.from(trace.x).forEach((x, i) => {
        if (seen(xaxis, x) && seen(yaxis, trace.y[i])) found.push([name, x, trace.y[i]]);
      });
    }
    return found;
  };
  const table = (plot) => {
    const text = rows(plot).map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = `${named(plot)}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const kinds = { PNG: (plot) => picture(plot, "png"), SVG: (plot) => picture(plot, "svg"), CSV: table };
  const equip = (chart) => {
    if (chart.querySelector(":scope > .sb-chart-files") || !chart.querySelector(".js-plotly-plot")) return;
    const bar = document.createElement("div");
    bar.className = "sb-chart-files";
    for (const [word, act] of Object.entries(kinds)) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = word;
      button.title = `Download this chart as ${word}`;
      button.setAttribute("aria-label", button.title);
      button.addEventListener("click", () => act(chart.querySelector(".js-plotly-plot")));
      bar.append(button);
    }
    chart.append(bar);
  };
  const look = () => document.querySelectorAll("[data-testid='stPlotlyChart']").forEach(equip);
  let due = 0;
  new MutationObserver(() => {
    cancelAnimationFrame(due);
    due = requestAnimationFrame(look);
  }).observe(document.body, { childList: true, subtree: true });
  look();
})();
