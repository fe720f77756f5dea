// The door of a class: a code is typed, and opens the page that has it in its path.

const CODE = /^[A-Z0-9]{6}$/;

const form = /** @type {HTMLFormElement} */ (document.getElementById("form"));
const input = /** @type {HTMLInputElement} */ (document.getElementById("code"));
const note = /** @type {HTMLElement} */ (document.getElementById("status"));

const dark = matchMedia("(prefers-color-scheme: dark)");
const main = /** @type {HTMLElement} */ (form.parentElement);

function showTheme() {
  for (const node of [document.documentElement, main]) node.dataset.theme = dark.matches ? "dark" : "light";
}

showTheme();
dark.addEventListener("change", showTheme);

/** @param {string} text as it is typed, with any case and spaces */
const codeOf = (text) => text.replace(/[^A-Za-z0-9]/g, "").toUpperCase();

/** @param {string} text */
function open(text) {
  const code = codeOf(text);
  if (CODE.test(code)) location.assign(`/${code}/`);
  else note.textContent = "A code has six letters and digits.";
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  open(input.value);
});

const path = location.pathname.slice(1);
if (path.endsWith("/")) {
  input.value = path.slice(0, -1).slice(0, 12);
  note.textContent = "This is not the code of this address: look again.";
} else if (CODE.test(codeOf(path))) open(path); // typed after the address, without the last slash
