/* Browser notifications when a run or a search ends, if the user has switched them on with the bell beside the theme
   switch. The page lists what has ended (`.sb-ending`); of several open pages only one notifies. */
(() => {
  if (window.scalebookBell) return;
  window.scalebookBell = true;
  const KEY = "scalebook-notify", TOLD = "scalebook-told";
  const wanted = () => localStorage.getItem(KEY) === "on" && window.Notification?.permission === "granted";
  const show = () => document.querySelectorAll(".sb-bell").forEach((bell) => {
    const words = !window.Notification ? "This browser has no notifications"
      : Notification.permission === "denied" ? "Notifications are blocked in this browser's settings"
      : wanted() ? "Do not notify me any more" : "Notify me when a run ends";
    if (bell.getAttribute("aria-label") === words) return;
    bell.setAttribute("aria-label", words);
    bell.title = words;
    bell.setAttribute("aria-pressed", String(wanted()));
  });
  const tell = () => document.querySelectorAll(".sb-ending:not([data-seen])").forEach((ending) => {
    ending.dataset.seen = "yes";
    const told = JSON.parse(localStorage.getItem(TOLD) || "[]");
    if (!wanted() || told.includes(ending.dataset.id)) return;
    localStorage.setItem(TOLD, JSON.stringify([...told, ending.dataset.id].slice(-100)));
    const note = new Notification("Scalebook", { body: ending.textContent, tag: ending.dataset.id });
    note.onclick = () => {
      window.focus();
      location.assign(ending.dataset.url);
    };
  });
  document.addEventListener("click", async (event) => {
    if (!event.target.closest?.(".sb-bell") || !window.Notification) return;
    const on = wanted();
    if (!on && Notification.permission === "default") await Notification.requestPermission();
    localStorage.setItem(KEY, on ? "off" : "on");
    show();
  });
  new MutationObserver(() => {
    show();
    tell();
  }).observe(document.body, { childList: true, subtree: true });
  show();
})();
