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

/** Text that keeps its own direction. @param {string} text */
export function isolate(text) {
  return `\u2068${text}\u2069`;
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
  if (/^ ?[\ufe00-\ufe0f]+$/.test(text)) return `⟨U+${text.trim().charCodeAt(0).toString(16).toUpperCase()}⟩`; // of nothing
  const escaped = escapeInvisible(truncate(text, 4 * maxLength).replace(/^ (?=\S)/, ""));
  return escaped === ""
    ? "∅"
    : escaped.trim() === ""
      ? "␣".repeat(Math.min(escaped.length, maxLength))
      : truncate(escaped, maxLength);
}

/** The last token that is part of the text. @param {Token[]} tokens */
export function lastWord(tokens) {
  return Math.max(
    0,
    tokens.findLastIndex(({ special }) => !special),
  );
}

const MAX_TABLE = 1 << 20; // pairs of tokens; longer texts are aligned by their common beginning and end alone

/**
 * The tokens of two texts, aligned by a longest common subsequence. Where they differ in as many tokens, these are pairs.
 * @param {Token[]} before @param {Token[]} after @returns {TokenPair[]}
 */
export function alignTokens(before, after) {
  const shorter = Math.min(before.length, after.length);
  const isSame = (/** @type {number} */ i, /** @type {number} */ j) => before[i].text === after[j].text;
  let [start, end] = [0, 0];
  while (start < shorter && isSame(start, start)) start += 1;
  while (end < shorter - start && isSame(before.length - 1 - end, after.length - 1 - end)) end += 1;
  const [rows, cols] = [before.length - end - start, after.length - end - start];
  const width = cols + 1;
  const hasTable = rows * cols <= MAX_TABLE;
  const common = new Int32Array(hasTable ? (rows + 1) * width : 0); // of what is left from a place on
  if (hasTable)
    for (let i = rows - 1; i >= 0; i--)
      for (let j = cols - 1; j >= 0; j--)
        common[i * width + j] = isSame(start + i, start + j)
          ? common[(i + 1) * width + j + 1] + 1
          : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
  const pairs = /** @type {TokenPair[]} */ ([]);
  const add = (/** @type {number | null} */ a, /** @type {number | null} */ b, isChanged = false) =>
    pairs.push({ a, b, isChanged });
  const left = /** @type {number[][]} */ ([[], []]); // without a pair since the last one that has
  const pairLeft = () => {
    const [ofA, ofB] = left;
    if (ofA.length === ofB.length) ofA.forEach((i, n) => add(i, ofB[n], true));
    else for (const [i, j] of [...ofA.map((i) => [i, null]), ...ofB.map((j) => [null, j])]) add(i, j, true);
    ofA.length = ofB.length = 0;
  };
  for (let n = 0; n < start; n++) add(n, n);
  for (let [i, j] = [0, 0]; i < rows || j < cols;) {
    if (hasTable && i < rows && j < cols && isSame(start + i, start + j)) {
      pairLeft();
      add(start + i++, start + j++);
    } else if (j === cols || (i < rows && common[(i + 1) * width + j] >= common[i * width + j + 1]))
      left[0].push(start + i++);
    else left[1].push(start + j++);
  }
  pairLeft();
  for (let n = end; n > 0; n--) add(before.length - n, after.length - n);
  return pairs;
}

/** The place in another text of a token, or of what stands for it; null if nothing does. @param {Token[]} before @param {Token[]} after @param {number | null} index */
export function sameToken(before, after, index) {
  return index === null ? null : (alignTokens(before, after).find(({ a }) => a === index)?.b ?? null);
}

const MAX_NAME = 40;

/** The names of two texts: long ones without their common beginning. @param {string} a @param {string} b */
export function distinctTexts(a, b) {
  const letters = [...a];
  const common = letters.findIndex((letter, n) => letter !== [...b][n]);
  const begin =
    Math.max(a.length, b.length) <= MAX_NAME || common < 0 ? 0 : a.lastIndexOf(" ", Math.max(0, common - 12)) + 1;
  return [a, b].map((text) => label(`${begin > 0 ? "…" : ""}${text.slice(begin)}`, MAX_NAME));
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

/** Which occurrence each text is, in any case, from 1; 0 for one that occurs once. @param {string[]} texts */
export function occurrences(texts) {
  const seen = /** @type {Map<string, number[]>} */ (new Map());
  texts.forEach((text, n) => {
    const key = text.trim().toLowerCase();
    seen.set(key, seen.get(key) ?? []);
    seen.get(key)?.push(n);
  });
  const numbers = new Int32Array(texts.length);
  for (const places of seen.values()) if (places.length > 1) places.forEach((n, at) => (numbers[n] = at + 1));
  return numbers;
}

const tokenNumbers = /** @type {WeakMap<Token[], Int32Array>} */ (new WeakMap());

/** The label of a token, numbered if another has the same text: to:2. @param {Token[]} tokens @param {number} index */
export function tokenName(tokens, index) {
  const numbers = tokenNumbers.get(tokens) ?? occurrences(tokens.map(({ text }) => text));
  tokenNumbers.set(tokens, numbers);
  return numbered(label(tokens[index].text), numbers[index]);
}

/** @param {string} name @param {number} number of the occurrence, or 0 */
const numbered = (name, number) => (number ? `${name}:${number}` : name);

/**
 * The rows or columns of a map.
 * @param {Token[]} tokens @param {string} text @param {TokenSelection} query
 * @returns {Group[]}
 */
export function groupTokens(tokens, text, query) {
  const fullOf = (/** @type {number[]} */ members) => {
    const [first, last] = [tokens[members[0]], tokens[members[members.length - 1]]];
    if (members.length === 1) return first.text;
    const parts = members.map((i, n) => (n ? tokens[i].text.replace(/^##/, "") : tokens[i].text));
    return text.slice(first.start, last.end) || parts.join("");
  };
  const all = groupMembers(tokens, { ...query, special: true, from: 0, to: tokens.length });
  const numbers = occurrences(all.map(fullOf));
  const numberOf = new Map(all.map(([first], n) => [first, numbers[n]]));
  return groupMembers(tokens, query).map((members) => {
    const full = fullOf(members);
    const number = numberOf.get(members[0]) ?? 0;
    const short = label(full);
    const { special } = tokens[members[0]];
    return { members, label: short, name: numbered(short, number), full: numbered(full, number), special };
  });
}

/** The group of each token; -1 for a token that is not shown. @param {Group[]} axis @param {number} length */
export function groupIndices(axis, length) {
  const indices = new Int32Array(length).fill(-1);
  axis.forEach((group, index) => group.members.forEach((i) => (indices[i] = index)));
  return indices;
}

/** The groups of some tokens, as indices. @param {Int32Array} indices of all tokens, -1 for hidden ones @param {number[]} tokens */
export function indicesOf(indices, tokens) {
  return new Set(tokens.map((i) => indices[i]).filter((index) => index >= 0));
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
