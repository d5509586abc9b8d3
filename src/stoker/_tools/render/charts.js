// Draws the charts, after the library in the same module. Colours are variables of the style sheet, so a change of theme redraws nothing.
const { config, specs } = JSON.parse(document.getElementById("charts").textContent);
const NARROW = 560;

// The names that legends will show, as far as the spec says them: a legend has as many columns as fit side by side.
const names = (spec) => {
  if (Array.isArray(spec)) return spec.flatMap(names);
  if (spec === null || typeof spec !== "object") return [];
  const domains = ["color", "fill", "stroke", "strokeDash", "shape"].map((each) => spec.encoding?.[each]?.scale?.domain);
  return [...domains.filter(Array.isArray).flat().map(String), ...Object.entries(spec).flatMap(([key, each]) => (key === "data" ? [] : names(each)))];
};

// Names at the left take their room from the legends above, which begin where the bars do.
const margin = (spec, width) => {
  const fields = [spec, ...(spec.layer ?? [])].map((each) => each.encoding?.y).filter((each) => each?.type === "nominal").map((each) => each.field);
  const texts = fields.flatMap((field) => (spec.data?.values ?? []).map((each) => String(each[field] ?? "")));
  return Math.min(0.45 * width, 6.4 * Math.max(0, ...texts.map((each) => each.length)));
};

// What depends on the width that there is: legends in fewer columns, shorter labels and fewer ticks on a phone.
const fitted = (spec, width) => {
  const longest = Math.max(0, ...names(spec).map((each) => each.length)) || 16;
  const columns = Math.max(1, Math.floor((width - 40 - margin(spec, width)) / (6.4 * Math.min(longest, 36) + 24)));
  return {
    ...config,
    axisX: { labelSeparation: 8, ...(width < NARROW ? { titleAnchor: "end" } : {}) },
    axisQuantitative: { ...config.axisQuantitative, tickCount: width < NARROW ? 4 : 7 },
    legend: {
      ...config.legend, columns, labelLimit: Math.min(240, width - 60),
      ...(width < NARROW && { layout: { top: { anchor: "start", direction: "vertical", margin: 2 } } }), // several: one below the other
    },
  };
};

// Vega-Lite fits one view, or layers of it, to its container; of several views each has to be told its width.
const isComposed = (spec) => ["concat", "hconcat", "vconcat", "facet", "repeat"].some((each) => each in spec)
  || ["facet", "row", "column"].some((each) => each in (spec.encoding ?? {}));

const sized = (spec, width) => {
  if ("hconcat" in spec) return { ...spec, hconcat: spec.hconcat.map((each) => sized(each, width / spec.hconcat.length - 20)) };
  for (const several of ["vconcat", "concat"]) {
    if (several in spec) return { ...spec, [several]: spec[several].map((each) => sized(each, width)) };
  }
  if ("spec" in spec) return { ...spec, spec: sized(spec.spec, width) };
  return { ...spec, width: Math.max(80, Math.round(width)) };
};

const options = (spec, width) => ({
  actions: false,
  ast: true, // expressions are interpreted: the page's policy allows no code made from text
  config: fitted(spec, width),
  renderer: "svg",
  tooltip: { theme: "stoker", disableDefaultStyle: true },
});

// In an element inside, which nobody is read: Vega gives it a role and a name, and the page has better ones around it.
const embed = async (at, spec, width, more = {}) => {
  at.drawn?.finalize();
  const inside = document.createElement("div");
  inside.ariaHidden = "true";
  at.replaceChildren(inside);
  at.drawn = await vegaEmbed(inside, spec, { ...options(spec, width), ...more });
};

// Only the width is fitted; the height is its own, or by rows. Said to Vega: Vega-Lite warns when rows settle the height.
// Names at the left have less than half of the width.
const patch = (width) => (vega) => ({
  ...vega,
  autosize: { type: "fit-x", contains: "padding" },
  axes: vega.axes?.map((each) => (each.orient === "left" ? { ...each, labelLimit: Math.min(each.labelLimit || 240, 0.45 * width) } : each)),
});

const draw = async (at, spec) => {
  const width = at.clientWidth;
  at.width = width;
  if (!isComposed(spec)) {
    await embed(at, { ...spec, width }, width, { patch: patch(width) });
    return;
  }
  let inner = width - 80;
  for (let round = 0; round < 3; round += 1) { // axes and headers take what they take: that is known when they are drawn
    await embed(at, sized(spec, inner), width);
    const over = at.querySelector("svg").getBoundingClientRect().width - width;
    if (over <= 0 && over > -12) return;
    inner -= over + 2;
  }
};

const failed = (at, error) => {
  at.textContent = "This chart could not be drawn; its numbers are in the table.";
  at.closest("figure").querySelector("details").open = true;
  console.error(`${at.id}: ${error}`);
};

// One at a time and in order: the first charts are there first, and redrawing never runs over itself.
const wanted = new Set();
let at_work = false;
const work = async () => {
  if (at_work) return;
  at_work = true;
  for (const at of wanted) {
    wanted.delete(at);
    if (at.clientWidth && at.clientWidth !== at.width) await draw(at, specs[at.id]).catch((error) => failed(at, error));
  }
  at_work = false;
  document.documentElement.dataset.drawn = "true";
};

const observer = new ResizeObserver((entries) => {
  for (const { target } of entries) wanted.add(target);
  work();
});
for (const id of Object.keys(specs)) observer.observe(document.getElementById(id));
if (!Object.keys(specs).length) document.documentElement.dataset.drawn = "true";
