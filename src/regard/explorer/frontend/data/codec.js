// Blobs of an exported page: zlib in base 85, and packed weights. `regard.explorer.codec` writes them.

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";
const DIGITS = new Uint8Array(128);
Array.from(ALPHABET).forEach((char, digit) => (DIGITS[char.charCodeAt(0)] = digit));

/** @param {string} text in base 85, five characters for four bytes */
export function fromBase85(text) {
  const padding = (5 - (text.length % 5)) % 5;
  const padded = text + "~".repeat(padding);
  const out = new DataView(new ArrayBuffer((padded.length / 5) * 4));
  for (let from = 0, to = 0; from < padded.length; from += 5, to += 4) {
    let number = 0;
    for (let i = from; i < from + 5; i++) number = number * 85 + DIGITS[padded.charCodeAt(i)];
    out.setUint32(to, number);
  }
  return new Uint8Array(out.buffer, 0, out.byteLength - padding);
}

/** @param {string} text @returns {Promise<Uint8Array<ArrayBuffer>>} */
export async function decodeBlob(text) {
  const stream = new Blob([fromBase85(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * Weights in row-major order, from a blob in column-major order.
 * @param {Uint8Array} blob @param {number} rows @param {number} cols @param {number} decimals
 */
export function unpackWeights(blob, rows, cols, decimals) {
  const count = rows * cols;
  const out = new Float32Array(count);
  const unit = 10 ** decimals;
  const isNibbles = blob[0] === 2; // two values in a byte
  const escape = isNibbles ? 15 : 255;
  let large = 1 + Math.ceil(count / blob[0]); // the low byte of the next large value
  const highOffset = (blob.length - large) / 2; // from its low to its high byte
  for (let col = 0, i = 0; col < cols; col++) {
    for (let row = 0; row < rows; row++, i++) {
      let value = isNibbles ? (i % 2 ? blob[1 + (i >> 1)] & 15 : blob[1 + (i >> 1)] >> 4) : blob[1 + i];
      if (value === escape) {
        value = blob[large] + 256 * blob[large + highOffset];
        large++;
      }
      out[row * cols + col] = value / unit;
    }
  }
  return out;
}
