// Views ask JupyterLab's <body> which theme is on; here <html> says so.
const say = () => {
  document.body.dataset.jpThemeLight = String(document.documentElement.dataset.theme !== "dark");
};
document.addEventListener("DOMContentLoaded", say);
new MutationObserver(say).observe(document.documentElement, { attributeFilter: ["data-theme"] });

// The outputs of the cells below a question, and the prose up to the next heading or cell, stay hidden until the reader
// opens the answer. In JupyterLab, the question's own style sheet does this (grader/learner/prediction.py).
const hideWhatFollows = (answer) => {
  let next = answer.closest(".cell")?.nextElementSibling;
  const following = [];
  for (; next?.matches(".cell") && !next.querySelector(".remat-answer"); next = next.nextElementSibling) following.push(next);
  for (; next && !next.matches(".cell, section"); next = next.nextElementSibling) following.push(next);
  const update = () => following.forEach((element) => element.classList.toggle("remat-unanswered", !answer.open));
  answer.addEventListener("toggle", update);
  update();
};
document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".remat-answer").forEach(hideWhatFollows));

// Long names in tables can break after punctuation.
const allowBreaks = (code) => {
  code.innerHTML = code.innerHTML.replace(/[_.,(/[=+](?=[\w"'])/g, "$&<wbr>");
};
document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("td code .pre").forEach(allowBreaks));

// The theme's buttons that unfold a part of the sidebar have no text for screen readers.
document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("summary:has(> .toctree-toggle)").forEach(
  (button) => button.setAttribute("aria-label", `Pages of ${button.closest("li").querySelector("a").textContent.trim()}`),
));
