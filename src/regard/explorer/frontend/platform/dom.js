// Elements of a page. Text enters by textContent alone, styles by the style object, so that nothing in a token can act.

/**
 * @typedef {Record<string, any>} Props
 *   `on` maps events to functions, `style` properties to values, `data` to data attributes; a function or null is left out.
 */

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

/** A piece of a token: text on its own, whichever way it runs. @param {string} text @param {Props} [props] */
export function piece(text, props = {}) {
  return el("bdi", { dir: "auto", ...props }, text);
}

/**
 * Buttons of which one is chosen.
 * @param {string} name what is chosen, for who cannot see it
 * @param {{ key: string, title: string, says?: string }[]} choices @param {(key: string) => void} choose
 */
export function segmented(name, choices, choose) {
  const buttons = choices.map(({ key, title, says }) =>
    el(
      "button",
      { type: "button", class: "rg-segment", title: says ?? null, data: { key }, on: { click: () => choose(key) } },
      title,
    ),
  );
  const node = el("div", { class: "rg-segmented", role: "group", "aria-label": name }, ...buttons);
  return {
    node,
    /** @param {string} chosen @param {(key: string) => boolean} [allowed] */
    show(chosen, allowed = () => true) {
      for (const button of buttons) {
        const key = button.dataset.key ?? "";
        setAttribute(button, "aria-pressed", String(key === chosen));
        button.disabled = !allowed(key);
      }
    },
  };
}

/** A box to tick. @param {string} title @param {string} hint @param {(on: boolean) => void} turn */
export function toggle(title, hint, turn) {
  const box = el("input", { type: "checkbox", on: { change: () => turn(box.checked) } });
  const node = el("label", { class: "rg-toggle", title: hint || null }, box, el("span", {}, title));
  return { node, box };
}

/** @param {string} title @param {{ key: string, title: string }[]} choices @param {(key: string) => void} choose */
export function chooser(title, choices, choose) {
  const list = el(
    "select",
    { "aria-label": title, on: { change: () => choose(list.value) } },
    ...choices.map(({ key, title: name }) => el("option", { value: key }, name)),
  );
  return list;
}

/** @param {string} title @param {string} sign @param {() => void} act @param {Props} [props] */
export function iconButton(title, sign, act, props = {}) {
  return el(
    "button",
    { type: "button", class: "rg-icon", title, "aria-label": title, on: { click: act }, ...props },
    sign,
  );
}

/** What has the focus among the elements that a node is with, which a notebook may keep in a shadow. @param {Node} node */
export function focusedBeside(node) {
  return /** @type {Document | ShadowRoot} */ (node.getRootNode()).activeElement ?? null;
}

/** Set an attribute only where it differs. @param {Element} node @param {string} name @param {string} value */
export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** @param {Element} node @param {string} text */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Run after the events of this frame, once.
 * @param {() => void} act
 */
export function nextFrame(act) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      act();
    });
  };
}

/** Give the browser a file to keep. @param {string} name @param {Blob} blob */
export function handOver(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
