/* Streamlit changes a page with parameters in two steps: first the parameters, then the page. The step between, the old
   page with the new parameters, must not stay in the browser's history: the second step replaces it. */
(() => {
  if (window.scalebookHistory) return;
  window.scalebookHistory = true;
  const TOGETHER_MS = 5000;
  const push = history.pushState.bind(history);
  let first = null;
  history.pushState = (state, title, url) => {
    const to = new URL(url ?? "", location.href);
    const samePage = to.pathname === location.pathname;
    const second = !samePage && first && first.href === location.href && first.search === to.search
      && Date.now() - first.at < TOGETHER_MS;
    first = samePage ? { href: to.href, search: to.search, at: Date.now() } : null;
    if (second) history.replaceState(state, title, url);
    else push(state, title, url);
  };
})();
