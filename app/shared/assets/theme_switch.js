/* The switch between light and dark. Streamlit stores the choice in the browser, by the path at which a tab was opened,
   and reads it when a page loads. A choice that equals the system's theme is stored as "System", which follows it. */
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
