// A view as a file to keep: lines and text as SVG, pixels as PNG, numbers as CSV.

import { colourAt, inkOn } from "./colour.js";
import { svg } from "./dom.js";
import { decimalsFor, INK, labelled, numberAt, spanOf } from "./paint.js";
import { brief, placeOn } from "./scale.js";

/** @typedef {import("./paint.js").Scene} Scene */

const MOST_CELLS = 20_000; // drawn one by one; more become a picture within the picture

/** @param {number[]} rgb */
function hex(rgb) {
  return `#${rgb.map((c) => c.toString(16).padStart(2, "0")).join("")}`;
}

/**
 * What a map shows, as SVG.
 * @param {Scene} scene @param {HTMLCanvasElement} picture of the same, for maps of too many cells @param {string} title
 */
export function svgOf(scene, picture, title) {
  const { room, view, field, scale, theme } = scene;
  const ink = INK[theme];
  const span = spanOf(scene);
  const [wide, high] = [picture.width / 2, picture.height / 2];
  const out = svg("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, "font-family": "system-ui, sans-serif", "font-size": 12 });
  out.append(svg("title", {}, title), svg("rect", { width: wide, height: high, fill: ink.ground }));
  const right = Math.min(room.width, (field.cols.length - view.x) * view.k);
  const bottom = Math.min(room.height, (field.rows.length - view.y) * view.k);
  if ((span.row1 - span.row0) * (span.col1 - span.col0) > MOST_CELLS) {
    out.append(svg("image", { href: picture.toDataURL("image/png"), width: wide, height: high }));
    return new XMLSerializer().serializeToString(out);
  }
  const cells = svg("svg", { x: room.left, y: room.top, width: right, height: bottom, viewBox: `0 0 ${right} ${bottom}` });
  const decimals = decimalsFor(view.k, scene.decimals);
  for (let row = span.row0; row < span.row1; row++)
    for (let col = span.col0; col < span.col1; col++) {
      const value = numberAt(field.pyramid, row, col) ?? 0;
      const place = placeOn(scale, value);
      if (place === 0) continue;
      const [x, y] = [(col - view.x) * view.k, (row - view.y) * view.k];
      const colour = colourAt(theme, place);
      const gap = view.k >= 13 ? 0.5 : 0;
      cells.append(svg("rect", { x: x + gap, y: y + gap, width: view.k - 2 * gap, height: view.k - 2 * gap, fill: hex(colour) }));
      if (view.k >= 30 && Math.abs(value) >= 0.5 * 10 ** -decimals)
        cells.append(svg("text", { x: x + view.k / 2, y: y + view.k / 2 + 4, "text-anchor": "middle", "font-size": Math.min(13, view.k / 3.6), fill: inkOn(colour) }, brief(value, decimals)));
    }
  out.append(cells, svg("rect", { x: room.left, y: room.top, width: right, height: bottom, fill: "none", stroke: ink.faint }));
  const step = Math.max(1, Math.ceil(13 / view.k));
  for (const row of labelled(span.row0, span.row1, step, scene.row, scene.rowsFound))
    out.append(svg("text", { x: room.left - 9, y: room.top + (row + 0.5 - view.y) * view.k + 4, "text-anchor": "end", fill: ink.text }, field.rows[row].label));
  for (const col of labelled(span.col0, span.col1, step, scene.col, scene.colsFound)) {
    const x = room.left + (col + 0.5 - view.x) * view.k + 4;
    out.append(svg("text", { transform: `translate(${x} ${room.top - 7}) rotate(-60)`, fill: ink.text }, field.cols[col].label));
  }
  return new XMLSerializer().serializeToString(out);
}

/** One field of a CSV file; what a spreadsheet would run begins with an apostrophe. @param {string} text @param {boolean} [isNumber] */
export function csvField(text, isNumber = false) {
  const inert = !isNumber && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(inert) ? `"${inert.replace(/"/g, '""')}"` : inert;
}

/**
 * Rows of numbers between their tokens.
 * @param {string[]} rows @param {string[]} cols @param {(row: number, col: number) => number | null} at
 * @param {number} decimals
 */
export function csvOf(rows, cols, at, decimals) {
  const lines = [["", ...cols].map((name) => csvField(name)).join(",")];
  rows.forEach((name, row) => {
    const numbers = cols.map((_, col) => {
      const value = at(row, col);
      return value === null ? "" : String(Number(value.toFixed(decimals)));
    });
    lines.push([csvField(name), ...numbers].join(","));
  });
  return `${lines.join("\n")}\n`;
}

/**
 * The grid of heads as SVG: each thumbnail where it stands on the page.
 * @param {HTMLElement} grid @param {string} ground @param {string} ink
 */
export function gridSvg(grid, ground, ink) {
  const box = grid.getBoundingClientRect();
  const [wide, high] = [Math.ceil(box.width) + 24, Math.ceil(box.height) + 24];
  const out = svg("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `-12 -12 ${wide} ${high}`, width: wide, height: high, "font-family": "system-ui, sans-serif", "font-size": 11 });
  out.append(svg("rect", { x: -12, y: -12, width: wide, height: high, fill: ground }));
  for (const canvas of grid.querySelectorAll("canvas")) {
    const at = canvas.getBoundingClientRect();
    out.append(svg("image", { href: canvas.toDataURL("image/png"), x: at.left - box.left, y: at.top - box.top, width: at.width, height: at.height, preserveAspectRatio: "none", "image-rendering": "pixelated" }));
  }
  for (const text of grid.querySelectorAll(".rg-caption, .rg-heading")) {
    const at = text.getBoundingClientRect();
    if (at.width > 2 && text.textContent) out.append(svg("text", { x: at.left - box.left + at.width / 2, y: at.top - box.top + at.height / 2 + 4, "text-anchor": "middle", fill: ink }, text.textContent));
  }
  return new XMLSerializer().serializeToString(out);
}

/** An SVG as it looks on the page, with nothing left to a style sheet. @param {SVGElement} shown @param {string} ground */
export function settledSvg(shown, ground) {
  const copy = /** @type {SVGElement} */ (shown.cloneNode(true));
  const from = [shown, ...shown.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((node, n) => {
    const style = getComputedStyle(from[n]);
    for (const name of ["fill", "stroke", "stroke-width", "opacity", "font-size", "font-weight", "font-family"]) node.setAttribute(name, style.getPropertyValue(name));
  });
  const [, , wide, high] = (copy.getAttribute("viewBox") ?? "0 0 900 560").split(" ");
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", wide);
  copy.setAttribute("height", high);
  copy.prepend(svg("rect", { width: wide, height: high, fill: ground }));
  return new XMLSerializer().serializeToString(copy);
}

/** An SVG as pixels. @param {string} source @param {number} ratio @returns {Promise<Blob | null>} */
export async function pngOf(source, ratio) {
  const address = URL.createObjectURL(new Blob([source], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width * ratio, image.height * ratio];
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve) => canvas.toBlob(resolve));
  } finally {
    URL.revokeObjectURL(address);
  }
}

/** The numbers of a cell's steps, a line for each. @param {import("./source.js").Cell} cell */
export function cellCsv(cell) {
  const lines = Object.entries(cell).map(([name, value]) => [name, ...(Array.isArray(value) ? value : [value])].map((x) => csvField(typeof x === "number" ? String(x) : (x ?? "").toString(), typeof x === "number")).join(","));
  return `${lines.join("\n")}\n`;
}

/** A title as the name of a file. @param {string} title */
export function fileName(title) {
  return title.normalize("NFKD").replace(/\p{M}/gu, "").replace(/[^\w]+/g, "-").replace(/^-|-$/g, "").toLowerCase().slice(0, 60) || "attention";
}
