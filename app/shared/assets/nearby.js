/* Presses Show of the cells that are near the window, the nearest first, one after the other (`notebook/cells.py`). */
(() => {
  if (window.scalebookNearby) return;
  window.scalebookNearby = true;
  const LOOK_MS = 60, AGAIN_MS = 3000, NEAR_PX = 1800;
  let pressed = null, at = 0;
  const distance = (one) => {
    const box = one.closest('[class*="st-key-cell-"]').getBoundingClientRect();
    return Math.abs((box.top + box.bottom - window.innerHeight) / 2);
  };
  setInterval(() => {
    const waiting = [...document.querySelectorAll('[class*="st-key-cell-"] [class*="st-key-show-"] button')];
    if (!waiting.length || document.hidden) return;
    if (pressed?.isConnected && waiting.includes(pressed) && Date.now() - at < AGAIN_MS) return;
    const [next] = waiting.map((one) => [distance(one), one]).filter(([far]) => far < NEAR_PX).sort((a, b) => a[0] - b[0]);
    if (!next) return;
    [, pressed] = next;
    at = Date.now();
    pressed.click();
  }, LOOK_MS);
})();
