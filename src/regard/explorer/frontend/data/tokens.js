// Tokens as a person reads them: what does not show has a stand-in, what is long is cut, sub-words join into words.
// Knows no page. Whatever a token holds, it stays text.

/**
 * @typedef {{ text: string, special: boolean, word: number | null, start: number, end: number }} Token
 *   `start` and `end` count UTF-16 code units of the text, as JavaScript does.
 * @typedef {{ members: number[], label: string, full: string, special: boolean }} Group
 *   What is one row or column of a map: a token, or the tokens of one word.
 * @typedef {{ words: boolean, special: boolean, from: number, to: number }} Wanted
 *   Merge words; show special tokens; the stretch of tokens, `to` not among them.
 */

const UNSEEN = [
  [0x80, 0x9f],
  [0xad, 0xad],
  [0x61c, 0x61c],
  [0x115f, 0x1160],
  [0x17b4, 0x17b5],
  [0x180b, 0x180f],
  [0x200b, 0x200f],
  [0x2028, 0x202e],
  [0x2060, 0x206f],
  [0x3164, 0x3164],
  [0xd800, 0xdfff],
  [0xfeff, 0xfeff],
  [0xfff9, 0xfffb],
  [0xfffe, 0xffff],
  [0xe0000, 0xe007f],
];
const JOINERS = [0x200c, 0x200d]; // belong to scripts and emoji where they join two signs

/**
 * The text with each control, and each sign that is unseen or turns the text around it, as a visible stand-in.
 * @param {string} text
 */
export function visible(text) {
  if (/^[ -~]*$/.test(text)) return text; // as most tokens are, of which a long text has many
  const points = Array.from(text);
  return points.map((sign, i) => standIn(sign, points[i - 1], points[i + 1])).join("");
}

/** @param {string} sign @param {string | undefined} before @param {string | undefined} after */
function standIn(sign, before, after) {
  const code = /** @type {number} */ (sign.codePointAt(0));
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "␡";
  if (JOINERS.includes(code) && isBeyondLatin(before) && isBeyondLatin(after)) return sign;
  if (UNSEEN.some(([first, last]) => code >= first && code <= last)) {
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  }
  return sign;
}

/** @param {string | undefined} sign */
function isBeyondLatin(sign) {
  return sign !== undefined && /** @type {number} */ (sign.codePointAt(0)) > 0x24f;
}

/**
 * At most `most` signs, the last of them "…" where something was cut.
 * @param {string} text @param {number} most
 */
export function clip(text, most) {
  if (text.length <= most) return text;
  const points = Array.from(text.slice(0, 4 * most + 4));
  return points.length <= most && text.length <= 4 * most + 4 ? text : points.slice(0, most - 1).join("") + "…";
}

/**
 * A token as it stands beside a map: short, visible, never empty.
 * @param {string} text @param {number} [most]
 */
export function label(text, most = 18) {
  const shown = visible(clip(text, 4 * most).replace(/^ (?=\S)/, ""));
  return shown === "" ? "∅" : shown.trim() === "" ? "␣".repeat(Math.min(shown.length, most)) : clip(shown, most);
}

/** Which way a text runs, by its first letter. @param {string} text @returns {"ltr" | "rtl"} */
export function directionOf(text) {
  const [first = ""] = /\p{L}/u.exec(text) ?? [];
  return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u.test(first) ? "rtl" : "ltr";
}

/**
 * Two texts short enough to be told apart: what they begin with in common is left out.
 * @param {string} a @param {string} b @param {number} [most]
 * @returns {[string, string]}
 */
export function apart(a, b, most = 40) {
  if (a === b || (a.length <= most && b.length <= most)) return [label(a, most), label(b, most)];
  let same = 0;
  while (same < Math.min(a.length, b.length) && a[same] === b[same]) same += 1;
  const from = Math.max(0, a.lastIndexOf(" ", Math.max(0, same - 12)));
  const rest = (/** @type {string} */ text) => label(from ? `…${text.slice(from + 1)}` : text, most);
  return [rest(a), rest(b)];
}

/**
 * Which tokens each row or column of a map stands for.
 * @param {Token[]} tokens @param {Wanted} wanted
 */
export function membersOf(tokens, { words, special, from, to }) {
  /** @type {number[][]} */
  const all = [];
  let word = /** @type {number | null} */ (null);
  for (let i = Math.max(0, from); i < Math.min(to, tokens.length); i++) {
    const token = tokens[i];
    if (token.special && !special) continue;
    if (words && token.word !== null && token.word === word) all[all.length - 1].push(i);
    else all.push([i]);
    word = token.special ? null : token.word;
  }
  return all;
}

/**
 * The rows or columns of a map.
 * @param {Token[]} tokens @param {string} text @param {Wanted} wanted
 * @returns {Group[]}
 */
export function axisOf(tokens, text, wanted) {
  return membersOf(tokens, wanted).map((members) => {
    const [first, ...more] = members.map((i) => tokens[i]);
    const [last = first] = more.slice(-1);
    const full =
      more.length === 0
        ? first.text
        : text.slice(first.start, last.end) ||
          [first, ...more].map((token, n) => (n ? token.text.replace(/^##/, "") : token.text)).join("");
    return { members, label: label(full), full, special: first.special };
  });
}

/**
 * Which group holds each token; -1 for a token that is not shown.
 * @param {Group[]} axis @param {number} length
 */
export function placesOf(axis, length) {
  const places = new Int32Array(length).fill(-1);
  axis.forEach((group, place) => group.members.forEach((i) => (places[i] = place)));
  return places;
}

/**
 * Where the text has what is searched for, whatever its case: of each place, the tokens that hold some of it. What stands
 * nowhere in the text, as a special token, is found by its own name.
 * @param {Token[]} tokens @param {string} text @param {string} wanted
 * @returns {number[][]}
 */
export function search(tokens, text, wanted) {
  const parts = wanted
    .trim()
    .split(/\s+/)
    .map((part) => part.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
  if (parts[0] === "") return [];
  const needle = parts.join("\\s+");
  const standing = Array.from(tokens.keys()).filter((i) => tokens[i].start < tokens[i].end);
  let first = 0; // that may hold some of what is found next
  const found = Array.from(text.matchAll(new RegExp(needle, "giu")), ({ index, 0: { length } }) => {
    while (first < standing.length && tokens[standing[first]].end <= index) first += 1;
    let last = first;
    while (last < standing.length && tokens[standing[last]].start < index + length) last += 1;
    return standing.slice(first, last);
  });
  const own = tokens.flatMap((token, i) =>
    token.start === token.end && new RegExp(needle, "iu").test(token.text) ? [[i]] : [],
  );
  return [...found, ...own].filter(({ length }) => length > 0).sort((a, b) => a[0] - b[0]);
}
