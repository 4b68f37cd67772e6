/* SPDX-License-Identifier: BSD-2-Clause */
/* Draws a comparison (schema alloctrace.comparison/1) with Chart.js. Text gets into the page as text only. */
"use strict";

(() => {
const { comparison, histograms } = JSON.parse(document.getElementById("data").textContent);
const configs = comparison.configurations.map((config) => config.name);
const base = comparison.method.base;
const PALETTE = ["#3b82f6", "#f59e0b", "#10b981", "#ec4899", "#8b5cf6", "#06b6d4", "#ef4444", "#84cc16", "#d97757", "#64748b"];
const charts = [];

/* The base is grey everywhere; the others have one colour each, everywhere the same. */
function colorOf(name) {
	const others = configs.filter((other) => other !== base);
	const index = others.indexOf(name);

	if (index < 0)
		return "#8b93a1";
	return others.length <= PALETTE.length ? PALETTE[index] : `hsl(${(index * 137.5) % 360} 62% 52%)`;
}

/* Figures and texts */

function count(value) {
	return value.toLocaleString("en", { maximumFractionDigits: 1 });
}

function scaled(value, units, step, digits) {
	let unit = 0;

	while (Math.abs(value) >= step && unit + 1 < units.length) {
		value /= step;
		unit++;
	}
	return `${value.toLocaleString("en", { maximumFractionDigits: unit ? digits : 0 })} ${units[unit]}`;
}

function unitOf(key) {
	if (key.includes("_bytes"))
		return "bytes";
	return key.includes("_ns") ? "ns" : "count";
}

function format(value, unit) {
	if (unit === "ns")
		return scaled(value, ["ns", "\u00b5s", "ms", "s"], 1000, 2);
	return unit === "bytes" ? scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024, 2) : count(value);
}

const NAMES = {
	calls: "memory syscalls", kernel_ns: "kernel time", sys_ns: "system time", user_ns: "user time",
	wall_ns: "wall time", max_rss_bytes: "peak RSS", final_rss_bytes: "final RSS",
	commit_peak_pages: "commit peak, pages", commit_charged_pages: "pages charged", vmas_peak: "VMAs at most",
	minor_faults: "minor faults", major_faults: "major faults",
};

function nameOf(key) {
	if (key.startsWith("calls."))
		return `${key.slice(6)}, calls`;
	return key.startsWith("kernel_ns.") ? `${key.slice(10)}, time` : NAMES[key] || key;
}

function percent(ratio) {
	const value = 100 * (ratio - 1);

	return ratio >= 10 ? `\u00d7 ${ratio.toFixed(ratio < 100 ? 1 : 0)}` : `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toFixed(1)} %`;
}

function change(figure, unit) {
	if (figure.ratio)
		return percent(figure.ratio.median);
	return `${figure.difference.median < 0 ? "\u2212" : "+"}${format(Math.abs(figure.difference.median), unit)}`;
}

/* -1 less, 1 more than the base; 0 when that is not certain: the test and the interval must agree. */
function direction(figure) {
	if (!figure || !figure.difference || figure.same)
		return 0;
	return figure.difference.high < 0 ? -1 : Number(figure.difference.low > 0);
}

/* Elements */

function make(tag, options = {}, ...children) {
	const node = document.createElement(tag);

	for (const [key, value] of Object.entries(options))
		node[key] = value;
	node.append(...children);
	return node;
}

function swatch(name) {
	const node = make("span", { className: "swatch" });

	node.style.background = colorOf(name);
	return node;
}

function configCell(name) {
	return make("td", { className: "name" }, swatch(name), name, name === base ? " (base)" : "");
}

function table(head, rows) {
	const cells = head.map(([text, className]) => make("th", { className: className || "" }, text));

	return make("div", { className: "wide" },
		make("table", {}, make("thead", {}, make("tr", {}, ...cells)), make("tbody", {}, ...rows)));
}

function variable(name) {
	return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/* Charts: what each needs to be drawn again when light and dark change. */

function addChart(parent, label, height, describe) {
	const canvas = make("canvas", { role: "img", ariaLabel: label });
	const room = make("div", { className: "chart" }, canvas);

	room.style.height = `${height}px`;
	parent.append(room);
	charts.push({ canvas, describe, chart: null });
}

function draw() {
	Chart.defaults.color = variable("--quiet");
	Chart.defaults.borderColor = variable("--grid");
	Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
	Chart.defaults.font.size = 12;
	Chart.defaults.animation = false;
	Chart.defaults.maintainAspectRatio = false;
	for (const entry of charts) {
		if (entry.chart)
			entry.chart.destroy();
		entry.chart = new Chart(entry.canvas, entry.describe());
	}
	document.documentElement.dataset.charts = charts.length;
}

/* Round numbers of bytes are not those of other units. */
function byteTicks(axis) {
	const step = 2 ** Math.ceil(Math.log2((axis.max - axis.min) / 6));

	axis.ticks = [];
	for (let value = Math.ceil(axis.min / step) * step; value <= axis.max; value += step)
		axis.ticks.push({ value });
}

function valueAxis(unit, title, type = "linear") {
	return {
		type,
		afterBuildTicks: unit === "bytes" ? byteTicks : undefined,
		title: { display: true, text: title, color: variable("--ink") },
		ticks: { callback: (value) => format(value, unit), maxRotation: 0, autoSkipPadding: 18, maxTicksLimit: 9 },
		border: { color: variable("--line") },
	};
}

/* The 95 % interval of a bar, as a whisker. */
const whiskers = {
	id: "whiskers",
	afterDatasetsDraw(chart) {
		const context = chart.ctx;

		context.save();
		context.beginPath();
		context.rect(chart.chartArea.left, chart.chartArea.top, chart.chartArea.width, chart.chartArea.height);
		context.clip();
		context.strokeStyle = variable("--ink");
		context.lineWidth = 1.25;
		chart.data.datasets.forEach((dataset, index) => {
			if (!dataset.intervals || !chart.isDatasetVisible(index))
				return;
			chart.getDatasetMeta(index).data.forEach((bar, at) => {
				const interval = dataset.intervals[at];

				if (!interval || interval[0] === interval[1])
					return;
				const [low, high] = interval.map((value) => chart.scales.x.getPixelForValue(value));
				const half = Math.min(4, bar.height / 2);

				if (high - low < 3)
					return;
				context.beginPath();
				context.moveTo(low, bar.y);
				context.lineTo(high, bar.y);
				for (const x of [low, high]) {
					context.moveTo(x, bar.y - half);
					context.lineTo(x, bar.y + half);
				}
				context.stroke();
			});
		});
		context.restore();
	},
};

/* Classes of which some configuration had any, in the order of the report. */
function classesOf(program, prefix) {
	const keys = Object.keys(program.configurations[base]).filter((key) => key.startsWith(prefix));

	return keys.filter((key) => configs.some((name) => program.configurations[name][key].high > 0));
}

function addClassChart(parent, program, prefix, title, unit) {
	const keys = classesOf(program, prefix);
	const figures = keys.flatMap((key) => configs.map((name) => program.configurations[name][key]));
	const most = Math.max(...figures.map((figure) => figure.median));
	const height = 110 + keys.length * (configs.length * 13 + 16);
	const card = make("div", { className: "card" }, make("h3", {}, title),
		make("p", { className: "quiet" }, "Median of the runs of each configuration; the whisker is its 95 % interval."));

	if (!keys.length)
		return;
	parent.append(card);
	addChart(card, title, height, () => ({
		type: "bar",
		plugins: [whiskers],
		data: {
			labels: keys.map((key) => key.slice(prefix.length)),
			datasets: configs.map((name) => ({
				label: name,
				data: keys.map((key) => program.configurations[name][key].median),
				intervals: keys.map((key) => [program.configurations[name][key].low, program.configurations[name][key].high]),
				backgroundColor: colorOf(name),
				barPercentage: 0.92,
				categoryPercentage: 0.86,
			})),
		},
		options: {
			indexAxis: "y",
			scales: {
				/* One wide interval does not make all bars short: it leaves the chart, and the tooltip has it. */
				x: { ...valueAxis(unit, unit === "ns" ? "kernel time" : "calls"), beginAtZero: true,
				     suggestedMax: Math.min(Math.max(...figures.map((figure) => figure.high)), 2 * most) },
				y: { ticks: { color: variable("--ink") }, grid: { display: false } },
			},
			plugins: {
				legend: { align: "start", labels: { boxWidth: 12, boxHeight: 12, color: variable("--ink") } },
				tooltip: { callbacks: { label: (item) => ` ${item.dataset.label}: ${format(item.parsed.x, unit)}` +
					` (${item.dataset.intervals[item.dataIndex].map((value) => format(value, unit)).join(" .. ")})` } },
			},
		},
	}));
}

/* Every run as a dot, a row a configuration, with the median and its interval. */
function addDistribution(parent, program, key) {
	const unit = unitOf(key);
	const rows = configs.map((name) => program.configurations[name][key]);
	const card = make("div", { className: "card" }, make("h3", {}, nameOf(key)));

	if (rows.some((row) => !row) || !rows.some((row) => row.high > 0))
		return;

	const values = rows.flatMap((row) => row.runs);
	const least = Math.min(...values), most = Math.max(...values), room = (most - least || most) / 25;

	parent.append(card);
	addChart(card, `${nameOf(key)} of every run`, 74 + 30 * configs.length, () => ({
		type: "scatter",
		data: {
			datasets: configs.flatMap((name, row) => [
				{ label: name, showLine: true, pointRadius: 0, borderWidth: 9, borderColor: `${colorOf(name)}${colorOf(name)[0] === "#" ? "55" : ""}`,
				  data: [{ x: rows[row].low, y: row }, { x: rows[row].high, y: row }] },
				{ label: name, pointStyle: "rectRot", pointRadius: 6, backgroundColor: colorOf(name), borderColor: variable("--card"), borderWidth: 1.5,
				  data: [{ x: rows[row].median, y: row }] },
				{ label: name, pointRadius: 2.5, pointHoverRadius: 4, backgroundColor: variable("--ink"), borderColor: "transparent",
				  data: rows[row].runs.map((value, at) => ({ x: value, y: row + ((at * 7) % 11 - 5) / 22 })) },
			]),
		},
		options: {
			scales: {
				x: { ...valueAxis(unit, nameOf(key)), suggestedMin: Math.max(0, least - room), suggestedMax: most + room },
				y: {
					min: -0.6, max: configs.length - 0.4, reverse: true, grid: { display: false },
					afterBuildTicks: (axis) => { axis.ticks = configs.map((_, row) => ({ value: row })); },
					ticks: { autoSkip: false, color: variable("--ink"), callback: (row) => configs[row] },
				},
			},
			plugins: {
				legend: { display: false },
				tooltip: { callbacks: { label: (item) => ` ${item.dataset.label}: ${format(item.parsed.x, unit)}` } },
			},
		},
	}));
}

/* How long single calls took: all runs of a configuration together. */
function addHistogram(parent, index) {
	const all = (histograms || [])[index] || {};
	const classes = [...new Set(configs.flatMap((name) => Object.keys(all[name] || {})))];
	const total = (name) => configs.reduce((sum, config) => sum + ((all[config] || {})[name] || []).reduce((s, b) => s + b[1], 0), 0);
	const select = make("select", { ariaLabel: "class" });
	const card = make("div", { className: "card" }, make("label", { className: "tools" }, "class ", select),
		make("h3", {}, "Latency of single calls"),
		make("p", { className: "quiet" }, "Calls of all runs by their time in the kernel; buckets are 12.5 % wide."));
	let entry;

	if (!classes.length)
		return;
	classes.sort((a, b) => total(b) - total(a));
	select.append(...classes.map((name) => make("option", { value: name }, name)));
	parent.append(card);
	addChart(card, "latency histogram", 300, () => ({
		type: "line",
		data: {
			datasets: configs.filter((name) => (all[name] || {})[select.value]).map((name) => ({
				label: name,
				borderColor: colorOf(name),
				backgroundColor: colorOf(name),
				stepped: "after",
				pointRadius: 0,
				borderWidth: 2,
				data: all[name][select.value].map(([ns, cnt]) => ({ x: Math.max(1, ns), y: cnt })),
			})),
		},
		options: {
			interaction: { mode: "nearest", axis: "x", intersect: false },
			scales: {
				x: { ...valueAxis("ns", "time of one call (logarithmic)", "logarithmic"),
				     ticks: { callback: (value) => (/^[125]0*$/.test(String(value)) ? format(value, "ns") : ""), maxRotation: 0, autoSkipPadding: 24 } },
				y: { ...valueAxis("count", "calls"), beginAtZero: true },
			},
			plugins: {
				legend: { labels: { boxWidth: 12, boxHeight: 12, color: variable("--ink") } },
				tooltip: { callbacks: { title: (items) => (items.length ? `up to ${format(items[0].parsed.x, "ns")}` : ""),
					label: (item) => ` ${item.dataset.label}: ${count(item.parsed.y)} calls` } },
			},
		},
	}));
	entry = charts[charts.length - 1];
	select.addEventListener("change", () => {
		entry.chart.destroy();
		entry.chart = new Chart(entry.canvas, entry.describe());
	});
}

/* Texts */

const HEADLINE = ["calls", "kernel_ns", "sys_ns", "user_ns", "wall_ns", "max_rss_bytes", "final_rss_bytes", "commit_peak_pages",
	"commit_charged_pages", "vmas_peak", "minor_faults"];

/* What was saved beside what it cost: which of two trades is the better one is not said. */
function verdicts(program) {
	const rows = configs.filter((name) => name !== base).map((name) => {
		const figures = program.configurations[name];
		const list = (sign) => HEADLINE.filter((key) => direction(figures[key]) === sign)
			.map((key) => make("div", {}, `${nameOf(key)} ${change(figures[key], unitOf(key))}`));
		const saved = list(-1), cost = list(1);

		if (!saved.length && !cost.length)
			return make("tr", {}, configCell(name), make("td", { colSpan: 2, className: "quiet" }, "~ no difference that could not be chance"));
		return make("tr", {}, configCell(name),
			make("td", { className: saved.length ? "saves" : "quiet" }, ...(saved.length ? saved : ["nothing"])),
			make("td", { className: cost.length ? "costs" : "quiet" }, ...(cost.length ? cost : ["nothing that was measured"])));
	});

	return make("div", { className: "card" }, make("h3", {}, `Saved and cost, against ${base}`),
		table([["configuration"], ["saves"], ["costs"]], rows));
}

function allFigures(program) {
	const rows = [];

	for (const key of Object.keys(program.configurations[base])) {
		const unit = unitOf(key);

		if (!configs.some((name) => program.configurations[name][key].high > 0))
			continue;
		rows.push(make("tr", { className: "figure" }, make("td", { colSpan: 5 }, nameOf(key))));
		for (const name of configs) {
			const figure = program.configurations[name][key];
			const number = (text) => make("td", { className: "number" }, text);

			rows.push(make("tr", {}, configCell(name), number(format(figure.median, unit)),
				number(figure.low === figure.high ? "every run" : `${format(figure.low, unit)} .. ${format(figure.high, unit)}`),
				number(name === base ? "base" : `${change(figure, unit)}${figure.same ? " ~" : ""}`),
				number(name === base ? "" : figure.p.toPrecision(2))));
		}
	}
	return make("details", { className: "card" }, make("summary", {}, "All figures"),
		table([["configuration"], ["median", "number"], ["95 % interval", "number"], ["change", "number"], ["p", "number"]], rows));
}

function settings() {
	const rows = comparison.configurations.map((config) => {
		const parts = [config.allocator];

		if (config.policy)
			parts.push(`policies ${config.policy.length ? config.policy.join(", ") : "none"}`);
		for (const [key, value] of Object.entries(config.tune || {}))
			parts.push(`${key}=${value}`);
		parts.push(...config.env);
		return make("tr", {}, configCell(config.name), make("td", {}, parts.join("; ")));
	});

	return make("div", { className: "card" }, table([["configuration"], ["settings"]], rows));
}

function geometricMeans() {
	const means = comparison.geometric_means;
	const keys = HEADLINE.filter((key) => configs.some((name) => means[name] && key in means[name]));
	const rows = configs.filter((name) => name !== base).map((name) => make("tr", {}, configCell(name),
		...keys.map((key) => make("td", { className: "number" }, means[name] && key in means[name] ? percent(means[name][key]) : "\u2013"))));

	return make("div", { className: "card" },
		make("h3", {}, `Geometric mean of the change over ${comparison.programs.length} programs, against ${base}`),
		table([["configuration"], ...keys.map((key) => [nameOf(key), "number"])], rows));
}

function head(main) {
	const { host, method, tool } = comparison;
	const names = comparison.programs.map((program) => program.name).join(", ");

	document.title = `Comparison: ${names}`;
	main.append(make("h1", {}, `Comparison: ${names}`),
		make("p", { className: "quiet" },
			`alloctrace ${tool.version}, tier ${tool.tier}; ${method.blocks} blocks of one run each in random order, seed ${method.seed}. ` +
			`Linux ${host.kernel}, ${host.cpus} CPUs${host.thp ? `, THP ${host.thp}` : ""}, overcommit_memory ${host.overcommit_memory}. ` +
			`Changes are against ${base}; ~ cannot be told from chance.`));
	if (comparison.warnings.length)
		main.append(make("div", { className: "alarm" }, make("strong", {}, "Before you believe it"),
			make("ul", {}, ...comparison.warnings.map((text) => make("li", {}, text)))));
	main.append(settings());
	if (comparison.geometric_means)
		main.append(geometricMeans());
}

function addProgram(main, program, index) {
	const dots = make("div", { className: "cards" });

	if (comparison.programs.length > 1)
		main.append(make("h2", {}, program.name));
	main.append(verdicts(program));
	addClassChart(main, program, "calls.", program.phase === "measured" ? "Calls by class, measured phase" : "Calls by class", "count");
	addClassChart(main, program, "kernel_ns.", "Kernel time by class", "ns");
	main.append(make("h3", {}, "Every run"), make("p", { className: "quiet" },
		"A dot a run; the diamond is the median, the band its 95 % interval."), dots);
	for (const key of ["kernel_ns", "wall_ns", "sys_ns", "max_rss_bytes", "final_rss_bytes", "minor_faults"])
		addDistribution(dots, program, key);
	addHistogram(main, index);
	main.append(allFigures(program));
}

const main = document.getElementById("page");

head(main);
comparison.programs.forEach((program, index) => addProgram(main, program, index));
draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
