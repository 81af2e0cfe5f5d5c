/* Scrolls to the first of `places` that appears, and keeps it in view while the page above it is still being drawn.
   `visit` identifies one arrival at the page. */
(places, visit) => {
  if (window.scalebookArrived === visit) return;
  window.scalebookArrived = visit;
  const COMES_MS = 15000, SETTLES_MS = 2500, LOOK_MS = 120;
  const begun = Date.now();
  let found = null, since = 0, own = false;
  const leave = () => { own = true; };
  for (const what of ["wheel", "touchmove", "keydown", "pointerdown"]) window.addEventListener(what, leave, { once: true, passive: true });
  const look = () => {
    if (own || window.scalebookArrived !== visit) return;
    const next = places.map((place) => document.getElementsByClassName(place)[0]).find(Boolean);
    if (next && next !== found) {
      if (!found) {
        since = Date.now();
        next.animate([{ boxShadow: "0 0 0 4px rgba(18, 134, 140, .45)" }, { boxShadow: "0 0 0 4px rgba(18, 134, 140, 0)" }], 2200);
      }
      found = next;
      found.tabIndex = -1;
      found.focus({ preventScroll: true });
    }
    if (found) found.scrollIntoView({ block: "start" });
    if (found ? Date.now() - since < SETTLES_MS : Date.now() - begun < COMES_MS) setTimeout(look, LOOK_MS);
  };
  look();
}
