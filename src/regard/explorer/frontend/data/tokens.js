// Tokens as readable text: invisible characters escaped, long ones truncated, sub-words merged into words. Pure functions.

const INVISIBLE =
  /(?![\ufe00-\ufe0f])[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\ufff9-\ufffb\ufffe\uffff]/u; // but for variation selectors
const JOINERS = "\u200c\u200d"; // part of scripts and emoji between two characters

/** The text with control, invisible and bidirectional characters as visible placeholders. @param {string} text */
export function escapeInvisible(text) {
  if (/^[ -~]*$/.test(text)) return text; // fast path: most tokens
  const chars = Array.from(text);
  return chars.map((char, i) => placeholderFor(char, chars[i - 1], chars[i + 1])).join("");
}

/** @param {string} char @param {string | undefined} before @param {string | undefined} after */
function placeholderFor(char, before, after) {
  const code = /** @type {number} */ (char.codePointAt(0));
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "␡";
  if (JOINERS.includes(char) && isBeyondLatin(before) && isBeyondLatin(after)) return char;
  return INVISIBLE.test(char) ? `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩` : char;
}

/** @param {string | undefined} char */
function isBeyondLatin(char) {
  return char !== undefined && /** @type {number} */ (char.codePointAt(0)) > 0x24f;
}

/** At most `maxLength` characters, the last of them "…" if the text was longer. @param {string} text @param {number} maxLength */
export function truncate(text, maxLength) {
  if (text.length <= maxLength) return text;
  const chars = Array.from(text.slice(0, 4 * maxLength + 4));
  return chars.length <= maxLength && text.length <= 4 * maxLength + 4
    ? text
    : chars.slice(0, maxLength - 1).join("") + "…";
}

/** The label of a token: short, visible, never empty. @param {string} text @param {number} [maxLength] */
export function label(text, maxLength = 18) {
  const escaped = escapeInvisible(truncate(text, 4 * maxLength).replace(/^ (?=\S)/, ""));
  return escaped === ""
    ? "∅"
    : escaped.trim() === ""
      ? "␣".repeat(Math.min(escaped.length, maxLength))
      : truncate(escaped, maxLength);
}

/** The direction of a text, by its first letter. @param {string} text @returns {"ltr" | "rtl"} */
export function textDirection(text) {
  const [first = ""] = /\p{L}/u.exec(text) ?? [];
  return /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u.test(first) ? "rtl" : "ltr";
}

/** The tokens of each row or column of a map. @param {Token[]} tokens @param {TokenSelection} query */
export function groupMembers(tokens, { words, special, from, to }) {
  const all = /** @type {number[][]} */ ([]);
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
 * @param {Token[]} tokens @param {string} text @param {TokenSelection} query
 * @returns {Group[]}
 */
export function groupTokens(tokens, text, query) {
  return groupMembers(tokens, query).map((members) => {
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

/** The group of each token; -1 for a token that is not shown. @param {Group[]} axis @param {number} length */
export function groupIndices(axis, length) {
  const indices = new Int32Array(length).fill(-1);
  axis.forEach((group, index) => group.members.forEach((i) => (indices[i] = index)));
  return indices;
}

/**
 * Case-insensitive matches of a query in the text, each as its tokens. Tokens without a place in the text, as special
 * tokens, match by their own text.
 * @param {Token[]} tokens @param {string} text @param {string} query
 * @returns {number[][]}
 */
export function search(tokens, text, query) {
  const words = query.trim().split(/\s+/);
  if (words[0] === "") return [];
  const pattern = words.map((word) => word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")).join("\\s+");
  const positioned = Array.from(tokens.keys()).filter((i) => tokens[i].start < tokens[i].end);
  let first = 0; // that may contain part of the next match
  const found = Array.from(text.matchAll(new RegExp(pattern, "giu")), ({ index, 0: { length } }) => {
    while (first < positioned.length && tokens[positioned[first]].end <= index) first += 1;
    let last = first;
    while (last < positioned.length && tokens[positioned[last]].start < index + length) last += 1;
    return positioned.slice(first, last);
  });
  const special_ = tokens.flatMap((token, i) =>
    token.start === token.end && new RegExp(pattern, "iu").test(token.text) ? [[i]] : [],
  );
  return [...found, ...special_].filter(({ length }) => length > 0).sort((a, b) => a[0] - b[0]);
}
