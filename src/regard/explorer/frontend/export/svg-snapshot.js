// Parts of the page as one picture: lines of text, bars, maps and drawings where they stand, what is pressed left out.

import { label } from "../data/tokens.js";
import { svg } from "../platform/dom.js";
import { FONT } from "../render/map-renderer.js";
import { forXml } from "./file-export.js";

const LEFT_OUT =
  "button:not(.rg-head, .rg-heading button), input, select, label, .rg-zoom, .rg-tip, .rg-corner, .rg-unseen";
const LOOK = ["fill", "stroke", "stroke-width", "opacity", "font-size", "font-weight", "font-family"];
const [EDGE, GAP, BETWEEN] = [20, 12, 36];

/**
 * A part of the page as SVG.
 * @param {Element} part @param {(canvas: HTMLCanvasElement) => SVGElement | null} drawn  what a canvas shows, where it is known by more than its pixels
 */
export function pictureOf(part, drawn) {
  const box = part.getBoundingClientRect();
  const [x0, y0] = [box.left - part.scrollLeft, box.top - part.scrollTop];
  const [width, height] = [Math.max(box.width, part.scrollWidth), Math.max(box.height, part.scrollHeight)];
  const out = svg("svg", { width, height, overflow: "visible" });
  /** @param {Element} node @param {SVGElement} into */
  const copy = (node, into) => {
    const at = node.getBoundingClientRect();
    if (node.matches(LEFT_OUT) || (at.width === 0 && at.height === 0)) return;
    const where = { x: at.left - x0, y: at.top - y0, width: at.width, height: at.height };
    const style = getComputedStyle(node);
    if (node instanceof SVGSVGElement) return into.append(settled(node, where));
    if (style.opacity !== "1") into.append((into = svg("g", { opacity: style.opacity })));
    if (node instanceof HTMLCanvasElement) return into.append(...canvasOf(node, where, drawn(node)));
    if (!/^rgba\(.*, 0\)$/.test(style.backgroundColor))
      into.append(
        svg("rect", { ...where, rx: Number.parseFloat(style.borderRadius) || 0, fill: style.backgroundColor }),
      );
    for (const child of node.childNodes) {
      if (child instanceof Text) into.append(...linesOf(child, style, x0, y0));
      else if (child instanceof Element) copy(child, into);
    }
  };
  copy(part, out);
  return { node: out, width, height };
}

/** @param {HTMLCanvasElement} canvas @param {Record<string, number>} where @param {SVGElement | null} drawn */
function canvasOf(canvas, where, drawn) {
  if (drawn) {
    drawn.setAttribute("x", String(where.x));
    drawn.setAttribute("y", String(where.y));
    return [drawn];
  }
  const chosen = canvas.closest('[aria-selected="true"]');
  const image = svg("image", {
    ...where,
    href: canvas.toDataURL("image/png"),
    preserveAspectRatio: "none",
    "image-rendering": "pixelated",
  });
  return chosen
    ? [
        image,
        svg("rect", {
          ...where,
          rx: 4,
          fill: "none",
          stroke: getComputedStyle(chosen).getPropertyValue("--mark"),
          "stroke-width": 2,
        }),
      ]
    : [image];
}

/** A drawing as it looks on the page, with nothing left to a style sheet. @param {SVGElement} shown @param {Record<string, number>} where */
function settled(shown, where) {
  const copy = /** @type {SVGElement} */ (shown.cloneNode(true));
  const from = [shown, ...shown.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, n) => {
    const style = getComputedStyle(from[n]);
    for (const name of LOOK) node.setAttribute(name, style.getPropertyValue(name));
  });
  for (const [name, value] of Object.entries(where)) copy.setAttribute(name, String(value));
  return copy;
}

/** A text line by line. @param {Text} text @param {CSSStyleDeclaration} style @param {number} x0 @param {number} y0 */
function linesOf(text, style, x0, y0) {
  /** @type {{ words: string[], left: number, top: number, height: number }[]} */
  const lines = [];
  const range = document.createRange();
  for (const found of text.data.matchAll(/\S+/g)) {
    range.setStart(text, found.index);
    range.setEnd(text, found.index + found[0].length);
    const { left, top, height } = range.getBoundingClientRect();
    const last = lines[lines.length - 1];
    if (last && Math.abs(last.top - top) < 2)
      Object.assign(last, { words: [...last.words, found[0]], left: Math.min(last.left, left) });
    else if (height > 0) lines.push({ words: [found[0]], left, top, height });
  }
  const look = {
    fill: style.color,
    "font-size": style.fontSize,
    "font-weight": style.fontWeight,
    "font-style": style.fontStyle,
    "font-family": style.fontFamily,
  };
  return lines.map(({ words, left, top, height }) =>
    svg("text", { x: left - x0, y: top - y0 + 0.79 * height, ...look }, words.join(" ")),
  );
}

/**
 * Parts of the page one below the other, in columns, under a title.
 * @param {string} title @param {string} says @param {Element[][]} columns @param {import("../render/map-renderer.js").Ink} ink
 * @param {(canvas: HTMLCanvasElement) => SVGElement | null} drawn
 */
export function sheetOf(title, says, columns, ink, drawn) {
  const made = columns.map((column) =>
    column.filter((part) => part.getClientRects().length).map((part) => pictureOf(part, drawn)),
  );
  const widths = made.map((column) => Math.max(0, ...column.map(({ width }) => width)));
  const heights = made.map((column) => column.reduce((sum, { height }) => sum + height + GAP, 0));
  const wide =
    Math.max(
      320,
      widths.reduce((sum, width) => sum + width + BETWEEN, -BETWEEN),
    ) +
    2 * EDGE;
  const high = Math.max(...heights) + 48 + 2 * EDGE;
  const out = svg("svg", {
    xmlns: "http://www.w3.org/2000/svg",
    viewBox: `0 0 ${wide} ${high}`,
    width: wide,
    height: high,
    "font-family": FONT,
  });
  out.append(
    svg("title", {}, `${title}. ${label(says, 1000)}`),
    svg("rect", { width: wide, height: high, fill: ink.ground }),
    svg("text", { x: EDGE, y: EDGE + 14, fill: ink.text, "font-size": 16, "font-weight": 600 }, title),
    svg(
      "text",
      { x: EDGE, y: EDGE + 33, fill: ink.muted, "font-size": 12.5 },
      label(says, Math.floor((wide - 2 * EDGE) / 7)),
    ),
  );
  let x = EDGE;
  made.forEach((column, n) => {
    let y = EDGE + 48;
    for (const { node, height } of column) {
      node.setAttribute("x", String(x));
      node.setAttribute("y", String(y));
      out.append(node);
      y += height + GAP;
    }
    x += widths[n] + BETWEEN;
  });
  return forXml(new XMLSerializer().serializeToString(out));
}
