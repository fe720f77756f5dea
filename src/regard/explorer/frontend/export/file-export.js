// Export formats: values as CSV, SVG as PNG, and names of files.

/** A field of a CSV file; formulas are escaped with an apostrophe, so that no spreadsheet runs them. @param {string} text @param {boolean} [isNumeric] */
export function csvField(text, isNumeric = false) {
  const escaped = !isNumeric && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(escaped) ? `"${escaped.replace(/"/g, '""')}"` : escaped;
}

/** Rows as CSV: numbers as they are, and nothing for null. @param {unknown[][]} rows */
export function csvOf(rows) {
  const cell = (/** @type {unknown} */ x) => csvField(String(x ?? ""), typeof x === "number");
  return rows.map((row) => `${row.map(cell).join(",")}\n`).join("");
}

/**
 * A table with row and column names.
 * @param {string} corner @param {string[]} rows @param {string[]} cols @param {(row: number, col: number) => number | null} valueAt
 * @param {number} decimals
 */
export function toCsv(corner, rows, cols, valueAt, decimals) {
  const rounded = (/** @type {number | null} */ value) => (value === null ? null : Number(value.toFixed(decimals)));
  const lines = rows.map((name, row) => [name, ...cols.map((_, col) => rounded(valueAt(row, col)))]);
  return csvOf([[corner, ...cols], ...lines]);
}

/** Text with U+FFFD for each character that XML does not allow. @param {string} text */
export function toXmlText(text) {
  return text.replace(/[^\t\n\r\u{20}-\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]/gu, "\ufffd");
}

/** SVG as PNG. @param {string} source @param {number} ratio @returns {Promise<Blob | null>} */
export async function rasterize(source, ratio) {
  const url = URL.createObjectURL(new Blob([source], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width * ratio, image.height * ratio];
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve) => canvas.toBlob(resolve));
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** A record, one line for each number, text or list. @param {Record<string, unknown>} record */
export function toRecordCsv(record) {
  const isFlat = (/** @type {unknown} */ x) => x === null || typeof x !== "object" || Array.isArray(x);
  const fields = Object.entries(record).filter(([, value]) => isFlat(value));
  return csvOf(fields.map((field) => field.flat()));
}

/** A file name from parts, each shortened. @param {string[]} parts */
export function fileName(...parts) {
  const slugs = parts.map((part) =>
    part
      .normalize("NFKD")
      .replace(/\p{M}/gu, "")
      .replace(/[^\w]+/g, "-")
      .toLowerCase()
      .slice(0, 40)
      .replace(/^-+|-+$/g, ""),
  );
  return slugs.filter(Boolean).join("-") || "attention";
}
