/* Streamlit hears of a text only when its box is left. Here it hears of it whenever typing pauses, and when the page is
   hidden or closed: what is half typed is then kept as a draft. The event is the one by which React learns of a blur. */
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
