// A view as a file to keep: numbers as CSV, a picture as pixels, a name for the file.

/** One field of a CSV file; what a spreadsheet would run begins with an apostrophe. @param {string} text @param {boolean} [isNumber] */
export function csvField(text, isNumber = false) {
  const inert = !isNumber && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(inert) ? `"${inert.replace(/"/g, '""')}"` : inert;
}

/**
 * Rows of numbers between their names.
 * @param {string} corner @param {string[]} rows @param {string[]} cols @param {(row: number, col: number) => number | null} at
 * @param {number} decimals
 */
export function csvOf(corner, rows, cols, at, decimals) {
  const lines = [[corner, ...cols].map((name) => csvField(name)).join(",")];
  rows.forEach((name, row) => {
    const numbers = cols.map((_, col) => {
      const value = at(row, col);
      return value === null ? "" : String(Number(value.toFixed(decimals)));
    });
    lines.push([csvField(name), ...numbers].join(","));
  });
  return `${lines.join("\n")}\n`;
}

/** A text with a stand-in for each sign that XML cannot hold. @param {string} text */
export function forXml(text) {
  return text.replace(/[^\t\n\r\u{20}-\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]/gu, "\ufffd");
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

/** Names and numbers, a line for each. @param {Record<string, unknown>} named */
export function linesCsv(named) {
  const field = (/** @type {unknown} */ x) =>
    typeof x === "number" ? csvField(String(x), true) : csvField(String(x ?? ""));
  return `${Object.entries(named)
    .map(([name, value]) => [name, ...(Array.isArray(value) ? value : [value])].map(field).join(","))
    .join("\n")}\n`;
}

/** The name of a file from what it is of; a long part leaves room for the others. @param {string[]} parts */
export function fileName(...parts) {
  const plain = parts.map((part) =>
    part
      .normalize("NFKD")
      .replace(/\p{M}/gu, "")
      .replace(/[^\w]+/g, "-")
      .toLowerCase()
      .slice(0, 40)
      .replace(/^-+|-+$/g, ""),
  );
  return plain.filter(Boolean).join("-") || "attention";
}
