// What mattered: the query of the page, its answer from an exported page, and its numbers in words. Pure functions.

import { formatFixed, formatSignificant, formatWeight } from "../render/format.js";
import { maxAbs } from "./matrix.js";
import { isolate } from "./tokens.js";

/** What a person has chosen; a default is left out. @param {State} state @param {Run} run @returns {AttributionQuery} */
export function attributionQuery({ attributionMethod, target, targetToken, afterRow, row }, { attribution, tokens }) {
  const isToken = attribution.target === "token";
  const position = afterRow && attribution.has_positions && row !== null && row < tokens.length - 1 ? row : null;
  return {
    ...(attributionMethod && { method: attributionMethod }),
    ...(target && { to: target }),
    ...(!target && isToken && targetToken !== null && { token: targetToken }),
    ...(position !== null && { position }),
  };
}

/**
 * The answer to a query from those that an exported page holds; an error if it does not hold it.
 * @param {HeldAttributions} held @param {AttributionQuery} query @param {string} defaultMethod @param {Record<string, string>} titles  of the methods
 * @returns {Attribution}
 */
export function heldAttribution(held, query, defaultMethod, titles) {
  const { method = defaultMethod, to, token, position } = query;
  const answer = held[method];
  const server = "regard explore without -o has all";
  if (!answer) {
    const others = Object.keys(held).map((key) => titles[key]);
    throw new Error(`This file holds ${others.join(", ") || "no attribution"}, not ${titles[method]}: ${server}.`);
  }
  const own = "error" in answer ? { to: null, token: null, likely: null } : answer;
  const text = own.likely?.find((each) => each.token === own.token)?.text;
  const isOwn = [undefined, own.to, text].includes(to) && [undefined, own.token].includes(token);
  if (!isOwn || position !== undefined)
    throw new Error(
      `This file holds what mattered for its default target alone: ${server}. Clear the target to see it.`,
    );
  if ("error" in answer) throw new Error(answer.error);
  return answer;
}

/**
 * A contribution with three digits of the largest, and a sign if it has one.
 * @param {number} value @param {number} max the largest absolute value @param {boolean} isSigned
 */
export function formatContribution(value, max, isSigned) {
  const digits = max > 0 ? 2 - Math.floor(Math.log10(max)) : 2;
  const text = digits > 7 ? formatSignificant(value) : formatFixed(value, Math.max(0, digits));
  return isSigned && value > 0 && /[1-9]/.test(text) ? `+${text}` : text;
}

/** The index of the largest absolute value; -1 of none. @param {Float32Array} values */
export function indexOfLargest(values) {
  const max = maxAbs(values);
  return max > 0 ? values.findIndex((value) => Math.abs(value) === max) : -1;
}

/**
 * Which word mattered most, and which was attended to most.
 * @param {string[]} labels @param {Float32Array} scores @param {Float32Array | null} weights
 */
export function strongestMessage(labels, scores, weights) {
  const [first, second] = [indexOfLargest(scores), weights ? indexOfLargest(weights) : -1];
  if (first < 0) return "Nothing mattered: every contribution is 0.";
  const mattered = `${isolate(labels[first])} mattered most`;
  if (second < 0) return `${mattered}.`;
  return first === second
    ? `${mattered}, and was attended to most.`
    : `${mattered}; ${isolate(labels[second])} was attended to most.`;
}

/**
 * Both numbers of a word.
 * @param {string} label @param {string} score @param {number | null} weight
 */
export function wordMessage(label, score, weight) {
  const attended = weight === null ? "" : `; attended to: ${formatWeight(weight)}`;
  return `${isolate(label)} contributed ${score}${attended}`;
}

/** A message as a sentence. @param {string} message */
export function sentence(message) {
  const text = message.charAt(0).toUpperCase() + message.slice(1);
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}
