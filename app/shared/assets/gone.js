/* When the page's server has ended, the page says so in Scalebook's words, in place of Streamlit's dialog about the
   connection. It asks the server only while Streamlit reports that it is not connected, and goes away by itself when the
   server is back. */
(() => {
  if (window.scalebookGone) return;
  window.scalebookGone = true;
  const EVERY_MS = 1500;
  const TRIES = 2;  // one failure may be a server that is being restarted
  let failed = 0;
  const notice = () => document.querySelector(".sb-gone");
  const show = () => {
    document.documentElement.classList.add("sb-without-server");
    if (notice()) return;
    const words = document.createElement("div");
    words.className = "sb-gone";
    words.setAttribute("role", "alert");
    words.innerHTML = "<b>scalebook ui has ended. Runs go on.</b> Start it again in the terminal, on the same port: this "
      + "page reconnects by itself, and what you are typing stays.";
    document.body.append(words);
  };
  const hide = () => {
    document.documentElement.classList.remove("sb-without-server");
    notice()?.remove();
  };
  setInterval(async () => {
    if (!notice() && !document.querySelector('[data-testid="stConnectionStatus"]')) { failed = 0; return; }
    let answers = false;
    try {
      answers = (await fetch("/_stcore/health", { cache: "no-store", signal: AbortSignal.timeout(EVERY_MS) })).status < 500;
    } catch { /* nobody listens there */ }
    failed = answers ? 0 : failed + 1;
    if (failed >= TRIES) show();
    else if (answers) hide();
  }, EVERY_MS);
})();
