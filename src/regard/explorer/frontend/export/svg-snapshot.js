// Parts of the page as one SVG: text, bars, maps and drawings in their places, without controls.

import { label } from "../data/tokens.js";
import { svg } from "../platform/dom.js";
import { FONT } from "../render/scene.js";
import { toXmlText } from "./file-export.js";

const EXCLUDED =
  "button:not(.rg-head, .rg-heading button, .rg-value, .rg-token, .rg-line-word, .rg-line-toggle, .rg-stream button, .rg-paths-view button, .rg-patching-cell), input, select, label, .rg-zoom, .rg-tip, .rg-corner, .rg-visually-hidden";
const BORDERED = ".rg-patching-cell"; // that are there even where they have the color of the ground
const STYLE_PROPERTIES = "fill stroke stroke-width stroke-dasharray opacity font-size font-weight font-family".split(
  " ",
);
const [MARGIN, GAP, COLUMN_GAP] = [20, 12, 36];

/**
 * A part of the page as SVG.
 * @param {Element} root @param {(canvas: HTMLCanvasElement) => SVGElement | null} drawCanvas  the drawing of a canvas, if there is one; else its pixels are copied
 */
export function snapshot(root, drawCanvas) {
  const box = root.getBoundingClientRect();
  const [x0, y0] = [box.left - root.scrollLeft, box.top - root.scrollTop];
  const [width, height] = [Math.max(box.width, root.scrollWidth), Math.max(box.height, root.scrollHeight)];
  const out = svg("svg", { width, height, overflow: "visible" });
  /** @param {Element} node @param {SVGElement} parent */
  const copyNode = (node, parent) => {
    const box = node.getBoundingClientRect();
    if (node.matches(EXCLUDED) || (box.width === 0 && box.height === 0)) return;
    const frame = { x: box.left - x0, y: box.top - y0, width: box.width, height: box.height };
    const style = getComputedStyle(node);
    if (node instanceof SVGSVGElement) return parent.append(inlineStyles(node, frame));
    if (style.opacity !== "1") parent.append((parent = svg("g", { opacity: style.opacity })));
    if (node instanceof HTMLCanvasElement) return parent.append(...snapshotCanvas(node, frame, drawCanvas(node)));
    if (!/^rgba\(.*, 0\)$/.test(style.backgroundColor)) {
      const stroke = node.matches(BORDERED) ? style.borderColor : "none";
      const rx = Number.parseFloat(style.borderRadius) || 0;
      parent.append(svg("rect", { ...frame, rx, fill: style.backgroundColor, stroke }));
    }
    for (const child of node.childNodes) {
      if (child instanceof Text) parent.append(...textLines(child, style, x0, y0));
      else if (child instanceof Element) copyNode(child, parent);
    }
  };
  copyNode(root, out);
  return { node: out, width, height };
}

/** @param {HTMLCanvasElement} canvas @param {Record<string, number>} frame @param {SVGElement | null} drawing */
function snapshotCanvas(canvas, frame, drawing) {
  for (const axis of ["x", "y"]) drawing?.setAttribute(axis, String(frame[axis]));
  if (drawing) return [drawing];
  const href = canvas.toDataURL("image/png");
  const image = svg("image", { ...frame, href, preserveAspectRatio: "none", "image-rendering": "pixelated" });
  const selected = canvas.closest('[aria-selected="true"]');
  if (!selected) return [image];
  const stroke = getComputedStyle(selected).getPropertyValue("--mark");
  return [image, svg("rect", { ...frame, rx: 4, fill: "none", stroke, "stroke-width": 2 })];
}

/** A copy of a drawing with its computed styles. @param {SVGElement} original @param {Record<string, number>} frame */
function inlineStyles(original, frame) {
  const copy = /** @type {SVGElement} */ (original.cloneNode(true));
  const originals = [original, ...original.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, n) => {
    const style = getComputedStyle(originals[n]);
    for (const name of STYLE_PROPERTIES) node.setAttribute(name, style.getPropertyValue(name));
  });
  for (const [name, value] of Object.entries(frame)) copy.setAttribute(name, String(value));
  if (original.getAttribute("preserveAspectRatio") === "none") unstretch(copy, frame);
  return copy;
}

/** A stretched drawing in the pixels of its frame, since its lines are as wide as on the page in every viewer then. @param {SVGElement} drawing @param {Record<string, number>} frame */
function unstretch(drawing, { width, height }) {
  const [, , boxWidth, boxHeight] = (drawing.getAttribute("viewBox") ?? "").split(" ").map(Number);
  const scales = { x: width / boxWidth, y: height / boxHeight };
  const names = /** @type {const} */ ({ x: ["x", "x1", "x2", "width"], y: ["y", "y1", "y2", "height"] });
  for (const node of drawing.querySelectorAll("*")) {
    for (const axis of /** @type {const} */ (["x", "y"]))
      for (const name of names[axis])
        if (node.hasAttribute(name)) node.setAttribute(name, String(Number(node.getAttribute(name)) * scales[axis]));
    const scaled = (/** @type {string} */ _, /** @type {string} */ x, /** @type {string} */ y) =>
      `${(Number(x) * scales.x).toFixed(2)} ${(Number(y) * scales.y).toFixed(2)}`;
    if (node.hasAttribute("d"))
      node.setAttribute("d", (node.getAttribute("d") ?? "").replace(/(-?[\d.]+) (-?[\d.]+)/g, scaled));
  }
  drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
}

/** The lines of a text. @param {Text} text @param {CSSStyleDeclaration} style @param {number} x0 @param {number} y0 */
function textLines(text, style, x0, y0) {
  const lines = /** @type {{ words: string[], left: number, top: number, height: number }[]} */ ([]);
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
  const fontStyle = {
    fill: style.color,
    "font-size": style.fontSize,
    "font-weight": style.fontWeight,
    "font-style": style.fontStyle,
    "font-family": style.fontFamily,
  };
  return lines.map(({ words, left, top, height }) =>
    svg("text", { x: left - x0, y: top - y0 + 0.79 * height, ...fontStyle }, words.join(" ")),
  );
}

/**
 * Parts of the page in columns, below a title.
 * @param {string} title @param {string} subtitle @param {Element[][]} columns @param {ThemeColors} colors
 * @param {(canvas: HTMLCanvasElement) => SVGElement | null} drawCanvas
 */
export function composeSheet(title, subtitle, columns, colors, drawCanvas) {
  const snapshots = columns.map((column) =>
    column.filter((root) => root.getClientRects().length).map((root) => snapshot(root, drawCanvas)),
  );
  const widths = snapshots.map((column) => Math.max(0, ...column.map(({ width }) => width)));
  const heights = snapshots.map((column) => column.reduce((sum, { height }) => sum + height + GAP, 0));
  const columnsWidth = widths.reduce((sum, width) => sum + width + COLUMN_GAP, -COLUMN_GAP);
  const sheetWidth = Math.max(320, columnsWidth) + 2 * MARGIN;
  const sheetHeight = Math.max(...heights) + 48 + 2 * MARGIN;
  const out = svg("svg", {
    xmlns: "http://www.w3.org/2000/svg",
    viewBox: `0 0 ${sheetWidth} ${sheetHeight}`,
    width: sheetWidth,
    height: sheetHeight,
    "font-family": FONT,
  });
  out.append(
    svg("title", {}, `${title}. ${label(subtitle, 1000)}`),
    svg("rect", { width: sheetWidth, height: sheetHeight, fill: colors.ground }),
    svg("text", { x: MARGIN, y: MARGIN + 14, fill: colors.text, "font-size": 16, "font-weight": 600 }, title),
    svg(
      "text",
      { x: MARGIN, y: MARGIN + 33, fill: colors.muted, "font-size": 12.5 },
      label(subtitle, Math.floor((sheetWidth - 2 * MARGIN) / 7)),
    ),
  );
  let x = MARGIN;
  snapshots.forEach((column, n) => {
    let y = MARGIN + 48;
    for (const { node, height } of column) {
      node.setAttribute("x", String(x));
      node.setAttribute("y", String(y));
      out.append(node);
      y += height + GAP;
    }
    x += widths[n] + COLUMN_GAP;
  });
  return toXmlText(new XMLSerializer().serializeToString(out));
}
