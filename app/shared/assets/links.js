/* Links to our own pages open in this tab and session, without a reload: those in our tables, and those in Streamlit's
   tables, which would open a new tab. With Ctrl, Shift, or a middle click they open a new tab. */
(() => {
  if (window.scalebookLinks) return;
  window.scalebookLinks = true;
  const TOLD = "called";  // the text of a link in Streamlit's tables; no page reads it
  let elsewhere = false;
  const note = (event) => { elsewhere = event.ctrlKey || event.metaKey || event.shiftKey || event.button === 1; };
  for (const what of ["pointerdown", "keydown", "click"]) document.addEventListener(what, note, true);
  const go = (url) => {
    url.searchParams.delete(TOLD);
    history.pushState({}, "", url.pathname + url.search);
    window.dispatchEvent(new PopStateEvent("popstate", { state: {} }));
    document.querySelector(".stMain")?.scrollTo(0, 0);
  };
  const opened = window.open.bind(window);
  window.open = (address, ...rest) => {
    const url = new URL(address ?? "", location.href);
    if (elsewhere || url.origin !== location.origin || !url.searchParams.has(TOLD)) return opened(address, ...rest);
    go(url);
    return null;
  };
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element && event.target.closest('table.sb a[href^="/"]');
    if (!link || elsewhere || event.defaultPrevented) return;
    event.preventDefault();
    go(new URL(link.href));
  });
})();
