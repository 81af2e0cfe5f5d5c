/* The switch between light and dark. Streamlit keeps a choice in this browser, by the path at which a tab was opened, and
   reads it when a page is loaded; "System" follows the system, which is what a choice that agrees with it becomes. */
(() => {
  if (window.scalebookSwitchesTheme) return;
  window.scalebookSwitchesTheme = true;
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.(".sb-theme");
    if (!button) return;
    const wanted = button.dataset.to;
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "Dark" : "Light";
    const paths = new Set([...button.dataset.paths.split(" "), location.pathname]);
    for (const path of paths) {
      localStorage.setItem(`stActiveTheme-${path}-v2`, JSON.stringify(wanted === system ? "System" : wanted));
    }
    location.reload();
  });
})();
