// Bytes and weights out of the text that a page holds: base 85, deflated, rounded to the digits that are shown. The
// other half is `regard.web._codec`, which says how they are written.

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";
const DIGIT = new Uint8Array(128);
Array.from(ALPHABET).forEach((sign, n) => (DIGIT[sign.charCodeAt(0)] = n));

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
  for (let at = 0; at < size;) {
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
  const halves = blob[0] === 2; // two numbers in a byte
  const escape = halves ? 15 : 255;
  let large = 1 + Math.ceil(count / blob[0]);
  const higher = (blob.length - large) / 2; // bytes from the lower to the higher
  for (let col = 0, i = 0; col < cols; col++) {
    for (let row = 0; row < rows; row++, i++) {
      let number = halves ? (i % 2 ? blob[1 + (i >> 1)] & 15 : blob[1 + (i >> 1)] >> 4) : blob[1 + i];
      if (number === escape) {
        number = blob[large] + 256 * blob[large + higher];
        large++;
      }
      out[row * cols + col] = number / unit;
    }
  }
  return out;
}
