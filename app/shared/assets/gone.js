/* When the page's server has ended, the page says so in Scalebook's words, in place of Streamlit's dialog about the
   connection. It asks the server only while Streamlit reports that it is not connected, and goes away by itself when the
   server is back. */
(() => {
  if (window.scalebookGone) return;
  window.scalebookGone = true;
  const EVERY_MS = 1500;
  const DISCONNECTED = '[data-test-connection-state]:not([data-test-connection-state="CONNECTED"])';
  const TRIES = 5;  // `scalebook ui` restarts a page server that has ended by itself
  let failed = 0;
  const notice = () => document.querySelector(".sb-gone");
  const show = () => {
    for (const dialog of document.querySelectorAll('[data-testid="stDialog"]'))
      if (dialog.textContent.trim().startsWith("Connection error")) dialog.style.display = "none";
    if (notice()) return;
    const words = document.createElement("div");
    words.className = "sb-gone";
    words.setAttribute("role", "alert");
    const first = document.createElement("b");  // by parts: st.html drops a script with markup in it
    first.textContent = "scalebook ui has ended. Runs go on.";
    words.append(first, " Start it again in the terminal, on the same port: this page reconnects by itself, and what you "
      + "are typing stays.");
    (document.querySelector(".stApp") ?? document.body).append(words);
  };
  setInterval(async () => {
    if (!notice() && !document.querySelector(DISCONNECTED)) { failed = 0; return; }
    let answers = false;
    try {
      answers = (await fetch("/_stcore/health", { cache: "no-store", signal: AbortSignal.timeout(EVERY_MS) })).status < 500;
    } catch { /* nobody listens there */ }
    failed = answers ? 0 : failed + 1;
    if (failed >= TRIES) show();
    else if (answers) notice()?.remove();
  }, EVERY_MS);
})();
