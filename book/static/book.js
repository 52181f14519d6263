// Views ask JupyterLab's <body> which theme is on; here <html> says so.
const say = () => {
  document.body.dataset.jpThemeLight = String(document.documentElement.dataset.theme !== "dark");
};
document.addEventListener("DOMContentLoaded", say);
new MutationObserver(say).observe(document.documentElement, { attributeFilter: ["data-theme"] });
