/* The button above a code block copies its text, and shows for a moment that it has. */
(() => {
  if (window.scalebookCopies) return;
  window.scalebookCopies = true;
  const SAID_MS = 1500;
  const copy = async (code) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(code.textContent);
    getSelection().selectAllChildren(code); // over plain HTTP from another machine this is the only clipboard
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
