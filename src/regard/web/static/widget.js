/** @param {{ el: HTMLElement }} host */
export function render({ el }) {
  el.textContent = "regard";
}
