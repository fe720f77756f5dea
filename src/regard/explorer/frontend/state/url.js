// The state as the fragment of a URL, and back.

import { FIELDS } from "./fields.js";
import { INITIAL_STATE } from "./state.js";

const ALL = Object.entries(/** @type {Record<string, Field<any>>} */ (FIELDS));
const ALWAYS_WRITTEN = ["layer", "head", "view"];

/** What differs from the initial state of the page. @param {State} state @param {State} [initialState] @returns {string} */
export function encode(state, initialState = INITIAL_STATE) {
  const params = new URLSearchParams();
  for (const [name, [key, , codec]] of ALL) {
    const [value, initial] = [state, initialState].map((one) => /** @type {any} */ (one)[name]);
    const isWritten = ALWAYS_WRITTEN.includes(name) || JSON.stringify(value) !== JSON.stringify(initial);
    if (codec && isWritten && codec.read(codec.write(value)) !== undefined) params.set(key, codec.write(value));
  }
  return params.toString();
}

/** The valid parts of a fragment. @param {string} hash @returns {Partial<State>} */
export function decode(hash) {
  const params = new URLSearchParams(hash.replace(/^#/, ""));
  const found = ALL.map(([name, [key, , codec]]) => {
    const text = params.get(key);
    return [name, text === null ? undefined : codec?.read(text)];
  });
  return Object.fromEntries(found.filter(([, value]) => value !== undefined));
}

/** What a fragment says that means nothing to the page. @param {string} hash */
export function unread(hash) {
  const found = decode(hash);
  const isRead = (/** @type {string} */ key) => ALL.some(([name, [own]]) => own === key && name in found);
  return [...new URLSearchParams(hash.replace(/^#/, ""))].filter(([key]) => !isRead(key)).map((part) => part.join("="));
}
