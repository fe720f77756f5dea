// Bytes and weights out of the text that a page holds: base 85, deflated, rounded to the digits that are shown. The
// other half is `regard.web._codec`, which says how they are written.

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";
const DIGIT = new Uint8Array(128);
Array.from(ALPHABET).forEach((sign, n) => (DIGIT[sign.charCodeAt(0)] = n));
const ESCAPE = 255;

/** @param {string} text five signs for four bytes */
export function fromBase85(text) {
  const out = new DataView(new ArrayBuffer((text.length / 5) * 4));
  for (let at = 0, to = 0; at < text.length; at += 5, to += 4) {
    let number = 0;
    for (let i = at; i < at + 5; i++) number = number * 85 + DIGIT[text.charCodeAt(i)];
    out.setUint32(to, number);
  }
  return new Uint8Array(out.buffer);
}

/**
 * @param {Uint8Array<ArrayBuffer>} bytes of zlib's format, with anything behind them @param {number} size of what they hold
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function inflated(bytes, size) {
  const out = new Uint8Array(size);
  const stream = new DecompressionStream("deflate");
  const [writer, reader] = [stream.writable.getWriter(), stream.readable.getReader()];
  // The last four are of the checksum or behind it, where a byte too many would be an error.
  writer.write(bytes.subarray(0, bytes.length - 4)).catch(() => {});
  for (let at = 0; at < size; ) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the data of this page is cut short");
    out.set(value.subarray(0, size - at), at);
    at += value.length;
  }
  reader.cancel().catch(() => {});
  writer.abort().catch(() => {});
  return out;
}

/**
 * Weights row by row, of a blob that has them column after column.
 * @param {Uint8Array} blob @param {number} rows @param {number} cols @param {number} decimals
 */
export function unpackedWeights(blob, rows, cols, decimals) {
  const count = rows * cols;
  const out = new Float32Array(count);
  const unit = 10 ** decimals;
  let large = count;
  for (let i = 0; i < count; i++) {
    let number = blob[i];
    if (number === ESCAPE) {
      number = blob[large] + 256 * blob[large + 1];
      large += 2;
    }
    out[(i % rows) * cols + Math.floor(i / rows)] = number / unit;
  }
  return out;
}
