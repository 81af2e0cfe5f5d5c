/* Streamlit sends a text only when its box loses focus. This script sends it whenever typing pauses, and when the page is
   hidden or closed, so that a half-typed text is saved as a draft. It dispatches the event that React treats as blur. */
(() => {
  if (window.scalebookKeepsTyping) return;
  window.scalebookKeepsTyping = true;
  const PAUSE_MS = 800;
  const waiting = new Map();
  const tell = (box) => {
    clearTimeout(waiting.get(box));
    waiting.delete(box);
    if (box.isConnected) box.dispatchEvent(new FocusEvent("focusout", { bubbles: true }));
  };
  document.addEventListener("input", (event) => {
    const box = event.target;
    if (!(box instanceof HTMLTextAreaElement) || event.isComposing) return;
    clearTimeout(waiting.get(box));
    waiting.set(box, setTimeout(tell, PAUSE_MS, box));
  }, true);
  const tellAll = () => [...waiting.keys()].forEach(tell);
  document.addEventListener("visibilitychange", tellAll);
  window.addEventListener("pagehide", tellAll);
})();
