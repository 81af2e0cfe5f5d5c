/* The button above a text in letters of one width copies it, and says for a moment that it has. */
(() => {
  if (window.scalebookCopies) return;
  window.scalebookCopies = true;
  const SAID_MS = 1500;
  const copy = async (code) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(code.textContent);
    getSelection().selectAllChildren(code); // by plain HTTP from another machine there is no clipboard but this
    document.execCommand("copy");
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.(".sb-copy");
    if (!button) return;
    await copy(button.parentElement.querySelector("code"));
    button.dataset.done = "yes";
    setTimeout(() => delete button.dataset.done, SAID_MS);
  });
})();
