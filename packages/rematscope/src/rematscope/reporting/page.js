"use strict";
(() => {
  document.documentElement.classList.add("with-script");
  const data = JSON.parse(document.getElementById("data").textContent);
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const text = (count) => {
    let i = 0;
    while (count >= 1024 && i < units.length - 1) { count /= 1024; i += 1; }
    return `${count < 1000 ? +count.toPrecision(3) : Math.round(count)} ${units[i]}`;
  };

  // The timeline: a cursor that the mouse or the arrow keys move, and a note about the moment below it.
  const time = document.getElementById("timeline");
  if (time) {
    const {left, width, samples, bands, totals, steps} = data.timeline;
    const cursor = time.querySelector(".cursor"), note = document.getElementById("moment");
    let at = totals.indexOf(Math.max(...totals));
    const show = (i) => {
      at = Math.max(0, Math.min(samples.length - 1, i));
      const x = left + (at + 0.5) / samples.length * width;
      cursor.setAttribute("x1", x); cursor.setAttribute("x2", x); cursor.style.visibility = "visible";
      const parts = bands.map((band, j) => [band[2][at], band[1] ? `${band[1]} (${band[0]})` : band[0], j]);
      parts.sort((a, b) => b[0] - a[0]);
      const said = parts.filter((part) => part[0]).slice(0, 6).map((part) => `${part[1]} ${text(part[0])}`);
      note.textContent = `Operation ${samples[at].toLocaleString()} of ${steps.toLocaleString()}: ` +
        `${text(totals[at])} live. ${said.join(" · ")}`;
    };
    time.addEventListener("mousemove", (event) => {
      const box = time.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * time.viewBox.baseVal.width;
      show(Math.floor((x - left) / width * samples.length));
    });
    time.addEventListener("keydown", (event) => {
      const by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20}[event.key];
      if (event.key === "Home") show(0);
      else if (event.key === "End") show(samples.length - 1);
      else if (by) show(at + by);
      else return;
      event.preventDefault();
    });
    time.addEventListener("focus", () => show(at));
  }

  // The icicle: click or Enter zooms, Escape zooms out, arrow keys move, a search dims what does not match.
  const icicle = document.getElementById("icicle");
  if (icicle) {
    const nodes = data.nodes, wide = icicle.viewBox.baseVal.width;  // [parent, start, bytes, depth, name, about, count]
    const groups = [...icicle.querySelectorAll(".node")], note = document.getElementById("part");
    const rects = groups.map((group) => group.firstElementChild), labels = groups.map((group) => group.lastElementChild);
    const row = rects[0].height.baseVal.value;
    let zoomed = 0, current = 0;
    // A label of at most so many letters; the number at the end of a name stays, as in "…11".
    const fitting = (node, letters) => {
      if (letters < 3) return "";
      const [name, label] = [node[4], `${node[4]} ${text(node[2])}`];
      if (label.length <= letters) return label;
      if (name.length <= letters) return name;
      const number = name.match(/\d+$/)?.[0] ?? "", tail = number.length < letters ? number : "";
      return `${name.slice(0, letters - 1 - tail.length)}…${tail}`;
    };
    const draw = () => {
      const [, start, bytes] = nodes[zoomed], scale = wide / bytes;
      let rows = 1;
      const letter = 0.55 * parseFloat(getComputedStyle(icicle).fontSize);
      nodes.forEach((node, i) => {
        const x = Math.max(0, (node[1] - start) * scale);
        const end = Math.min(wide, (node[1] + node[2] - start) * scale), size = end - x;
        groups[i].style.display = size > 0.4 ? "" : "none";
        if (size <= 0.4) return;
        rects[i].setAttribute("x", x); rects[i].setAttribute("width", size);
        rows = Math.max(rows, node[3] + 1);
        labels[i].setAttribute("x", x + 4);
        labels[i].textContent = fitting(node, Math.floor((size - 8) / letter));
      });
      icicle.setAttribute("viewBox", `0 0 ${wide} ${rows * row}`);
      const tooWide = groups.map((_, i) => i).filter((i) => !groups[i].style.display && labels[i].textContent)
        .map((i) => [i, (rects[i].width.baseVal.value - 8) / labels[i].getComputedTextLength()])
        .filter(([, share]) => share < 1);  // measured in one layout, because letters are not equally wide
      for (const [i, share] of tooWide) {
        labels[i].textContent = fitting(nodes[i], Math.floor(labels[i].textContent.length * share));
      }
    };
    const path = (i) => { const names = []; for (; i > 0; i = nodes[i][0]) names.unshift(nodes[i][4]); return names.join(" / "); };
    const tell = (i) => {
      const [, , bytes, , , about, count] = nodes[i];
      note.textContent = `${path(i) || "The peak"}: ${text(bytes)}, ${(100 * bytes / nodes[0][2]).toFixed(1)} % of the peak` +
        `${count > 1 ? `, ${count} buffers` : ""}. ${about}`;
    };
    const focus = (i) => {
      groups[current].tabIndex = -1; current = i; groups[i].tabIndex = 0; groups[i].focus(); tell(i);
    };
    const zoom = (i) => { zoomed = i; draw(); tell(i); };
    const index = (event) => groups.indexOf(event.target.closest(".node"));
    icicle.addEventListener("click", (event) => { const i = index(event); if (i >= 0) { zoom(i === zoomed ? nodes[i][0] < 0 ? 0 : nodes[i][0] : i); focus(i); } });
    icicle.addEventListener("mouseover", (event) => { const i = index(event); if (i >= 0) tell(i); });
    const visible = (i) => groups[i].style.display !== "none";
    const siblings = (i) => nodes.map((_, j) => j).filter((j) => nodes[j][3] === nodes[i][3] && visible(j));
    icicle.addEventListener("keydown", (event) => {
      const i = current;
      const step = (by) => { const all = siblings(i); return all[all.indexOf(i) + by]; };
      const next = {ArrowUp: () => nodes[i][0], ArrowDown: () => nodes.findIndex((n, j) => n[0] === i && visible(j)),
        ArrowRight: () => step(1), ArrowLeft: () => step(-1)}[event.key];
      if (next) { const j = next(); if (j !== undefined && j >= 0) focus(j); }
      else if (event.key === "Enter" || event.key === " ") zoom(i);
      else if (event.key === "Escape") zoom(Math.max(0, nodes[zoomed][0]));
      else return;
      event.preventDefault();
    });
    document.getElementById("whole").addEventListener("click", () => zoom(0));
    const search = document.getElementById("search"), found = document.getElementById("found");
    const words = nodes.map((node, i) => `${path(i)} ${node[5]}`.toLowerCase());
    search.addEventListener("input", () => {
      const word = search.value.trim().toLowerCase();
      const hit = words.map((each) => each.includes(word));
      const keep = hit.slice();
      let bytes = 0;
      nodes.forEach((node, i) => {  // parents come before their children, so a hit inside of a hit is not counted again
        if (hit[i] && !(node[0] >= 0 && hit[node[0]])) bytes += node[2];
        if (hit[i]) for (let j = node[0]; j >= 0; j = nodes[j][0]) keep[j] = true;
      });
      groups.forEach((group, i) => group.classList.toggle("off", Boolean(word) && !keep[i]));
      found.textContent = word ? `${text(bytes)} match` : "";
    });
    draw();
    matchMedia("(max-width: 1000px)").addEventListener("change", draw);
    groups[0].tabIndex = 0;
  }

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
      button.textContent = "Copied";
    });
  }
})();
