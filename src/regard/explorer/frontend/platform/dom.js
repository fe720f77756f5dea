// DOM elements. Text is only set by textContent, and styles by the style object, so that no token is interpreted as HTML.

const SVG = "http://www.w3.org/2000/svg";
const AS_PROPERTY = ["value", "checked", "disabled", "hidden", "open", "tabIndex", "id", "type", "min", "max", "step"];

/**
 * An element of HTML.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Props} [props] @param {...(Node | string | null | false)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) {
      if (name.startsWith("aria-") && value === false) node.setAttribute(name, "false");
    } else if (name === "on") {
      for (const [event, listener] of Object.entries(value))
        node.addEventListener(event, /** @type {any} */ (listener));
    } else if (name === "style") {
      for (const [property, setting] of Object.entries(value)) node.style.setProperty(property, String(setting));
    } else if (name === "data") {
      Object.assign(node.dataset, value);
    } else if (AS_PROPERTY.includes(name)) {
      /** @type {any} */ (node)[name] = value;
    } else {
      node.setAttribute(name, String(value));
    }
  }
  node.append(...children.filter((child) => child !== null && child !== false));
  return node;
}

/**
 * An element of SVG.
 * @param {string} tag @param {Record<string, string | number>} [attributes] @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/** Text with its own direction. @param {string} text @param {Props} [props] */
export function bidi(text, props = {}) {
  return el("bdi", { dir: "auto", ...props }, text);
}

/** @param {string | (Node | string)[]} content @param {(event: MouseEvent) => void} action @param {Props} [props] */
export function button(content, action, props = {}) {
  return el("button", { type: "button", class: "rg-button", on: { click: action }, ...props }, ...[content].flat());
}

/** Text beside what matters more. @param {...(Node | string)} content */
export function muted(...content) {
  return el("span", { class: "rg-muted" }, ...content);
}

/** The content of a table. @param {string[]} names of the columns @param {HTMLTableRowElement[]} rows */
export function tableOf(names, rows) {
  const heads = names.map((name) => el("th", { scope: "col" }, name));
  return [el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)];
}

/** A row of a table, its first cell a heading. @param {string | Node} heading @param {...(string | Node)} cells */
export function tableRow(heading, ...cells) {
  return el("tr", {}, el("th", { scope: "row" }, heading), ...cells.map((cell) => el("td", {}, cell)));
}

/** The markup of the page. @param {string} text of a template, which Python sends */
export function parseMarkup(text) {
  const template = new DOMParser().parseFromString(text, "text/html").querySelector("template");
  return /** @type {HTMLTemplateElement} */ (template).content;
}

/** The elements of the page by their `data-ref`. @param {ParentNode} root @returns {Refs} */
export function refsOf(root) {
  const named = /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("[data-ref]"));
  return /** @type {any} */ (Object.fromEntries([...named].map((node) => [node.dataset.ref, node])));
}

/** Listen to the buttons of a segmented control. @param {HTMLElement} node @param {(key: any) => void} onSelect */
export function onSegment(node, onSelect) {
  node.addEventListener("click", ({ target }) => {
    const segment = closest(target, "[data-key]");
    if (segment) onSelect(segment.dataset.key);
  });
}

/** Show which button of a segmented control is selected. @param {HTMLElement} node @param {string} selected @param {(key: string) => boolean} [allowed] */
export function showSegment(node, selected, allowed = () => true) {
  for (const segment of /** @type {Iterable<HTMLButtonElement>} */ (node.querySelectorAll("[data-key]"))) {
    const { key = "" } = segment.dataset;
    setAttribute(segment, "aria-pressed", String(key === selected));
    segment.disabled = !allowed(key);
  }
}

/** Fill a list, if its options differ. @param {HTMLSelectElement} list @param {{ key: string, title: string }[]} choices */
export function setOptions(list, choices) {
  const isSame = choices.every(
    ({ key, title }, n) => list.options[n]?.value === key && list.options[n].textContent === title,
  );
  if (!isSame || list.options.length !== choices.length)
    list.replaceChildren(...choices.map(({ key, title }) => el("option", { value: key }, title)));
}

/**
 * Arrow keys move the focus among elements of a node, and with it which of them the tab key reaches.
 * @template {HTMLElement | SVGElement} E
 * @param {Element} node @param {string} selector
 * @param {(all: E[], from: E, key: string) => E | undefined} [choose]  by default a neighbour, around the ends
 */
export function onArrows(node, selector, choose = nextOf) {
  node.addEventListener("keydown", (/** @type {any} */ event) => {
    const from = event.target.closest(selector);
    if (!from || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = /** @type {E[]} */ ([...node.querySelectorAll(selector)]);
    const next = choose(all, from, event.key);
    if (!next) return;
    setTabStop(all, next);
    next.focus();
    consume(event);
  });
}

/** Listen to what of a node is pointed at or focused; null: nothing any more. @param {Element} node @param {(target: EventTarget | null) => void} point */
export function onPoint(node, point) {
  for (const type of ["pointerover", "focusin"]) node.addEventListener(type, ({ target }) => point(target));
  for (const type of ["pointerleave", "focusout"]) node.addEventListener(type, () => point(null));
}

/** The element of a kind that a target is, or is in. @param {EventTarget | null} target @param {string} selector @returns {HTMLElement | null} */
export function closest(target, selector) {
  return target instanceof Element ? target.closest(selector) : null;
}

/** @template E @param {E[]} all @param {E} from @param {string} key */
export function nextOf(all, from, key) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key];
  return step === undefined ? step : all[(all.indexOf(from) + step + all.length) % all.length];
}

/** Make one of some elements that which the tab key reaches. @param {Iterable<HTMLElement | SVGElement>} all @param {Element | undefined} stop */
export function setTabStop(all, stop) {
  for (const node of all) if ((node.tabIndex === 0) !== (node === stop)) node.tabIndex = node === stop ? 0 : -1;
}

/** Keep an event from the page around. @param {Event} event */
export function consume(event) {
  event.preventDefault();
  event.stopPropagation();
}

/** The focused element of the document or shadow root of a node. @param {Node} node */
export function activeElementOf(node) {
  return /** @type {Document | ShadowRoot} */ (node.getRootNode()).activeElement ?? null;
}

/** Set an attribute, if it differs. @param {Element} node @param {string} name @param {string} value */
export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** @param {Element} node @param {string} text */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Download a file. @param {string} name @param {Blob} blob */
export function downloadFile(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
