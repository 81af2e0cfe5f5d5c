/* Ctrl+Enter runs (or saves the open note), Ctrl+S saves, Esc closes a note's editor if nothing in it has changed. Enter in
   a name (of a new notebook, a renamed one, a new file) presses the button below it. The typed text is sent to the server
   before the button is pressed; the answer may redraw the button, so it is found again by its key. */
(() => {
  if (window.scalebookKeys) return;
  window.scalebookKeys = true;
  const TOLD_MS = 60;
  const ENABLED_MS = 3000;  // the button is enabled as soon as the server has the name
  const EDITOR = '[class*="st-key-editor-"]';
  const button = (within, key) => within && [...within.querySelectorAll(`[class*="st-key-${key}"] button`)]
    .find((one) => !one.disabled && one.getClientRects().length);
  const press = (found) => {
    const box = document.activeElement;
    const key = [...found.closest('[class*="st-key-"]').classList].find((name) => name.startsWith("st-key-"));
    if (box instanceof HTMLTextAreaElement || box instanceof HTMLInputElement)
      box.dispatchEvent(new FocusEvent("focusout", { bubbles: true }));
    setTimeout(() => (found.isConnected ? found : document.querySelector(`.${CSS.escape(key)} button`))?.click(), TOLD_MS);
  };
  const soon = (found, until) => {
    if (found()) found().click();
    else if (Date.now() < until) setTimeout(() => soon(found, until), TOLD_MS);
  };
  const running = (at) => button(at.closest(EDITOR), "save-") || button(document, "compose-run")
    || button(document, "search-start") || button(at.closest('[class*="st-key-cell-"]'), "run-");
  const saving = (at) => button(at.closest(EDITOR), "save-") || button(document, "compose-save")
    || button(document, "search-save") || button(at.closest('[class*="st-key-cell-broken-"]'), "save-")
    || button(document.querySelector(EDITOR), "save-");
  const closing = (at) => {
    const editor = at.closest(EDITOR);
    return editor && editor.querySelector(".sb-unchanged") && !editor.dataset.typed && button(editor, "cancel-");
  };
  document.addEventListener("input", (event) => {
    const editor = event.target.closest?.(EDITOR);
    if (editor) editor.dataset.typed = "yes";
  }, true);
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.altKey || event.shiftKey) return;
    const dialog = document.querySelector('[role="dialog"]');
    const held = event.ctrlKey || event.metaKey;
    const at = event.target instanceof Element ? event.target : document.body;
    if (event.key === "Enter" && !held && dialog && at.matches('input[type="text"]')) {
      const name = ["create-notebook", "rename-notebook", "template-module"].find((key) => dialog.querySelector(`.st-key-${key}`));
      if (name) setTimeout(() => soon(() => button(dialog, name), Date.now() + ENABLED_MS), TOLD_MS);
    } else if (held && event.key.toLowerCase() === "s") {
      event.preventDefault();
      const found = !dialog && saving(at);
      if (found) press(found);
    } else if (held && event.key === "Enter" && !dialog) {
      const found = running(at);
      if (found) { event.preventDefault(); press(found); }
    } else if (event.key === "Escape" && !dialog) {
      const found = closing(at);
      if (found) press(found);
    }
  }, true);
})();
