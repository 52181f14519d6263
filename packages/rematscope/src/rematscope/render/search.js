// Searches lines, filters them by role, and goes from a value to its definition and its uses, also by keyboard.
// Python writes the lines: each .rs-row has its role, and the names that it defines and uses as JSON. Nothing of this is
// inserted as HTML. Without this script the page shows the same lines.

(() => {
  const root = document.currentScript.closest(".rematscope") ?? document.body;
  const rows = [...root.querySelectorAll(".rs-row")];
  if (rows.length === 0 || root.querySelector(".rs-search")) return;

  const make = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const listed = (row, what) => JSON.parse(row.dataset[what] ?? "[]");
  const texts = rows.map((row) => row.textContent.toLowerCase());

  // A line takes its line break along when it is hidden.
  for (const row of rows)
    if (row.nextSibling?.nodeType === Node.TEXT_NODE && row.nextSibling.data.startsWith("\n")) {
      row.nextSibling.data = row.nextSibling.data.slice(1);
      row.append("\n");
    }

  const input = make("input", { type: "search", placeholder: "find: /" });
  input.setAttribute("aria-label", "Find in the programs");
  const said = make("output", {});
  said.setAttribute("aria-live", "polite");
  const button = (text, title, act) => {
    const made = make("button", { type: "button", textContent: text, title });
    made.addEventListener("click", act);
    return made;
  };
  const words = { S: "saved", R: "recomputed", D: "deferred", B: "backward" };
  const roles = Object.entries(words)
    .filter(([role]) => rows.some((row) => row.dataset.role === role))
    .map(([role, word]) => {
      const toggle = button(`${role} ${word}`, `Show ${word} lines alone`, () => {
        toggle.setAttribute("aria-pressed", toggle.getAttribute("aria-pressed") !== "true");
        filter();
      });
      toggle.setAttribute("aria-pressed", "false");
      toggle.dataset.role = role;
      return toggle;
    });
  const bar = make(
    "div",
    { className: "rs-search" },
    input,
    button("↑", "Previous (N, or Shift and Enter)", () => step(-1)),
    button("↓", "Next (n, or Enter)", () => step(1)),
    ...roles,
    button("Definition", "Where the value of the selected line is computed (m)", () => jump(definitions())),
    button("Next use", "Where this value is used next (u)", () => jump(uses())),
    button("Back", "Back to the line before (b)", back),
    said,
  );
  bar.setAttribute("role", "search");
  root.prepend(bar);
  root.dataset.lmSuppressShortcuts = "true"; // else JupyterLab takes these keys for itself

  let found = rows; // the lines that are looked for
  let current = null;
  let subject = []; // the names of the values whose definition and uses are visited
  const visited = []; // the lines to go back to

  function say(text) {
    said.textContent = text;
  }

  function choose(row) {
    current?.classList.remove("rs-current");
    current = row;
    row.classList.add("rs-current");
    for (let box = row.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    row.tabIndex = 0;
    row.scrollIntoView({ block: "center" });
  }

  function counted() {
    const place = found.indexOf(current) + 1;
    const of = `${found.length} line${found.length === 1 ? "" : "s"}`;
    say(found.length === 0 ? "nothing found" : place ? `${place} of ${of}` : of);
  }

  function filter() {
    const pressed = roles.filter((toggle) => toggle.getAttribute("aria-pressed") === "true").map((t) => t.dataset.role);
    const wanted = input.value.trim().toLowerCase();
    found = [];
    rows.forEach((row, i) => {
      const shown = pressed.length === 0 || pressed.includes(row.dataset.role) || row.localName === "tr";
      const matches = shown && texts[i].includes(wanted);
      row.hidden = !shown;
      row.classList.toggle("rs-match", matches && wanted !== "");
      if (matches && (wanted || row.localName !== "tr") && (wanted || pressed.length)) found.push(row);
    });
    for (const box of root.querySelectorAll("details"))
      if (pressed.length && found.some((row) => box.contains(row))) box.open = true;
    if (wanted || pressed.length) counted();
    else say("");
  }

  function step(by) {
    if (found.length === 0) return say(input.value ? "nothing found" : "press / and type a search term");
    const place = found.indexOf(current);
    const next = place < 0 ? (by > 0 ? 0 : found.length - 1) : (place + by + found.length) % found.length;
    choose(found[next]);
    subject = [];
    counted();
  }

  const names = () => (subject.length ? subject : current ? listed(current, "makes") : []);
  const definitions = () => rows.filter((row) => row.localName !== "tr" && mentions(row, "makes"));
  const uses = () => rows.filter((row) => mentions(row, "reads"));
  const mentions = (row, what) => listed(row, what).some((name) => names().includes(name));

  function jump(places) {
    if (!current) return say("select a line first");
    const about = names();
    if (about.length === 0) return say("this line computes no value");
    if (places.length === 0) return say(`${about[0]}: no line found`);
    const next = places.find((row) => rows.indexOf(row) > rows.indexOf(current)) ?? places[0];
    visited.push({ row: current, subject });
    subject = about;
    next.hidden = false;
    choose(next);
    next.focus({ preventScroll: true });
    say(`${about[0]}: ${places.indexOf(next) + 1} of ${places.length}`);
  }

  function back() {
    const last = visited.pop();
    if (!last) return say("nowhere to go back to");
    choose(last.row);
    last.row.focus({ preventScroll: true });
    subject = last.subject;
    say("back");
  }

  input.addEventListener("input", filter);
  root.addEventListener("click", (event) => {
    const row = event.target.closest(".rs-row");
    if (!row || !rows.includes(row)) return;
    choose(row);
    row.focus({ preventScroll: true });
    subject = [];
  });
  (root === document.body ? document : root).addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const typing = event.target === input;
    if (!typing && event.target.closest?.("input, textarea, select, [contenteditable=true]")) return;
    if (event.target.closest?.("button, summary") && event.key === "Enter") return;
    const row = event.target.closest?.(".rs-row");
    const moved = (by) => {
      const seen = rows.filter((each) => !each.hidden && each.offsetParent);
      const next = row && seen[seen.indexOf(row) + by];
      if (next) choose(next), next.focus({ preventScroll: true }), (subject = []);
    };
    const acts = typing
      ? { Enter: () => step(event.shiftKey ? -1 : 1), Escape: () => ((input.value = ""), filter(), current?.focus()) }
      : {
          "/": () => (input.focus(), input.select()), n: () => step(1), N: () => step(-1), m: () => jump(definitions()),
          u: () => jump(uses()), b: back, ...(row && { ArrowDown: () => moved(1), ArrowUp: () => moved(-1) }),
        }; // prettier-ignore
    if (!Object.hasOwn(acts, event.key)) return;
    acts[event.key]();
    event.preventDefault();
    event.stopPropagation();
  });
})();
