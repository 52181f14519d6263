// Lights a value wherever it stands. What is shown was made in Python: the state is {html, notes, idle}.
// In the HTML, data-value holds the number of the value that an element is; data-about, of those that a line is about.

function render({ model, el }) {
  const note = document.createElement("div");
  note.className = "rs-note";
  note.setAttribute("role", "status"); // spoken when it changes, politely
  const page = document.createElement("div");
  page.dataset.lmSuppressShortcuts = "true"; // else JupyterLab takes the arrow keys for itself
  el.classList.add("rs-pane");
  el.append(note, page);

  let hovered = null; // lists of numbers, or null
  let chosen = null;

  function light() {
    const numbers = hovered ?? chosen ?? [];
    const wanted = numbers.map((number) => `[data-value~="${number}"]`).join();
    for (const element of page.querySelectorAll("[data-value]"))
      element.classList.toggle("rs-lit", wanted !== "" && element.matches(wanted));
    const notes = model.get("notes");
    const others = numbers.length > 3 ? [`and ${numbers.length - 3} more`] : [];
    const text = [...numbers.slice(0, 3).map((number) => notes[number]), ...others].join("\n");
    if (note.textContent !== (text || model.get("idle"))) note.textContent = text || model.get("idle");
  }

  const listed = (text) => (text ? text.split(" ") : null);
  const numbersAt = (target) => listed(target.closest?.("[data-value]")?.dataset.value);

  function choose(line) {
    const program = line.parentElement;
    for (const other of program.children) {
      other.tabIndex = other === line ? 0 : -1; // Tab comes back to the line that was left
      other.setAttribute("aria-selected", other === line);
    }
    hovered = null; // who walks by keyboard has left the pointer somewhere
    chosen = listed(line.dataset.about);
    light();
  }

  page.addEventListener("pointerover", (event) => {
    hovered = numbersAt(event.target);
    light();
  });
  page.addEventListener("pointerleave", () => {
    hovered = null;
    light();
  });
  page.addEventListener("click", (event) => {
    chosen = numbersAt(event.target);
    light();
  });
  page.addEventListener("focusin", (event) => {
    const line = event.target.closest("[role=option]");
    if (line) choose(line);
  });
  page.addEventListener("focusout", (event) => {
    event.target.closest("[role=option]")?.setAttribute("aria-selected", false);
    chosen = null;
    light();
  });
  page.addEventListener("keydown", (event) => {
    const line = event.target.closest("[role=option]");
    if (event.key === "Escape") {
      hovered = chosen = null;
      light();
    } else if (line) {
      const next = neighbour(line, event.key);
      if (!next) return;
      next.focus();
      event.preventDefault();
    }
  });

  function neighbour(line, key) {
    const program = line.parentElement;
    const programs = [...page.querySelectorAll("[role=listbox]")];
    switch (key) {
      case "ArrowDown":
        return line.nextElementSibling;
      case "ArrowUp":
        return line.previousElementSibling;
      case "Home":
        return program.firstElementChild;
      case "End":
        return program.lastElementChild;
      case "ArrowRight":
      case "ArrowLeft": {
        // To the other program: where it mentions this line's value first, if it does.
        const other = programs[programs.indexOf(program) + (key === "ArrowRight" ? 1 : -1)];
        const [number] = listed(line.dataset.about) ?? [];
        return other && (other.querySelector(`[data-value~="${number}"]`)?.closest("[role=option]") ?? first(other));
      }
    }
  }

  const first = (program) => program.querySelector('[tabindex="0"]') ?? program.firstElementChild;

  function show() {
    page.innerHTML = model.get("html");
    for (const program of page.querySelectorAll("[role=listbox]")) program.firstElementChild.tabIndex = 0;
    hovered = chosen = null;
    light();
  }

  model.on("change", show);
  show();
  return () => model.off("change", show);
}

export default { render };
