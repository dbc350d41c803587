// A click on a frame zooms in; one on the lowest frame zooms out.
const svg = document.currentScript.ownerSVGElement;
const left = Number(svg.dataset.left), full = Number(svg.dataset.full), letter = Number(svg.dataset.letter);
const frames = Array.from(svg.querySelectorAll(".frame"), g => {
	const [title, box, label] = g.children;
	const x = Number(box.getAttribute("x")), width = Number(box.getAttribute("width"));
	const name = title.textContent.slice(0, title.textContent.lastIndexOf(" ("));
	return { g, box, label, x, width, name, y: Number(box.getAttribute("y")) };
});
function fit(name, width) {
	const letters = Math.floor((width - 6) / letter);
	return letters < 3 ? "" : name.length <= letters ? name : name.slice(0, letters - 2) + "..";
}
function zoom(to) {
	const scale = full / to.width, slack = 0.001;
	for (const frame of frames) {
		const below = frame.y > to.y && frame.x <= to.x + slack && frame.x + frame.width >= to.x + to.width - slack;
		const inside = frame.y <= to.y && frame.x >= to.x - slack && frame.x + frame.width <= to.x + to.width + slack;
		const x = below ? left : left + (frame.x - to.x) * scale;
		const width = below ? full : frame.width * scale;
		frame.g.style.display = below || inside ? "" : "none";
		frame.g.style.opacity = below ? 0.5 : "";
		frame.box.setAttribute("x", x);
		frame.box.setAttribute("width", width);
		frame.label.setAttribute("x", x + 3);
		frame.label.textContent = fit(frame.name, width);
	}
}
for (const frame of frames) frame.g.addEventListener("click", () => zoom(frame));
