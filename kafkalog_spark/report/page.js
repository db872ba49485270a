const specs = JSON.parse(document.getElementById("charts").textContent);
const palette = [
  "#3b82f6", "#f59e0b", "#10b981", "#ef4444", "#8b5cf6", "#ec4899", "#14b8a6", "#a3763b", "#94a3b8", "#6366f1",
];
const dark = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 40rem)");

function config() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const text = { labelColor: color("--soft"), titleColor: color("--soft"), titleFontWeight: 400 };
  return {
    background: "transparent",
    font: "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif",
    view: { stroke: null },
    bar: { color: palette[0] },
    text: { color: color("--soft"), fontSize: 11.5 },
    range: { category: palette },
    axis: { ...text, gridColor: color("--line"), domain: false, tickColor: color("--line"), labelFontSize: 11.5 },
    axisY: { labelLimit: narrow.matches ? 140 : 320 },
    axisXTemporal: { labelFlush: true },
    legend: {
      ...text, labelFontSize: 12, symbolType: "square", labelLimit: narrow.matches ? 130 : 200,
      columns: narrow.matches ? 2 : 8,
    },
  };
}

async function draw() {
  const style = getComputedStyle(document.documentElement);
  for (const [id, spec] of Object.entries(specs)) {
    const shown = structuredClone(spec);
    if (shown.mark?.stroke === "var(--card)") shown.mark.stroke = style.getPropertyValue("--card").trim();
    const legend = shown.encoding?.color?.legend;
    if (legend?.columns && narrow.matches) legend.columns = 2;
    await vegaEmbed("#" + id, shown, {
      actions: false, renderer: "svg", tooltip: { theme: "custom" }, config: config(), ast: true,
    });
  }
  document.body.dataset.charts = "drawn";
}
draw();
dark.addEventListener("change", draw);
narrow.addEventListener("change", draw);

const value = (row, column) => {
  const cell = row.cells[column];
  return "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent;
};

function sort(head) {
  const column = head.cellIndex;
  const body = head.closest("table").tBodies[0];
  const first = head.getAttribute("aria-sort") ? null : body.rows[0] && typeof value(body.rows[0], column);
  const falling = first ? first === "number" : head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const rows = [...body.rows].sort((one, other) => {
    const a = value(one, column), b = value(other, column);
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    return falling ? -order : order;
  });
  body.append(...rows);
}

document.querySelectorAll("th").forEach((head) => {
  head.addEventListener("click", () => sort(head));
  head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(head); });
});

document.querySelectorAll(".filter").forEach((field) => {
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const row of field.nextElementSibling.querySelector("tbody").rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
    }
  });
});
