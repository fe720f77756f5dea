// The last maps of short texts, whole: one that is fetched ahead is there when its key is pressed.

import { keepLast } from "./tile-source.js";

const MAX_MAPS = 16; // of 4 MB at most

/** What fetches a map, once for as long as it is kept. @param {Source} source @param {AbortSignal} signal of the page */
export function recentMaps(source, signal) {
  /** @type {Map<string, Promise<Float32Array>>} */
  const maps = new Map();
  return (/** @type {HeadRef & Region} */ at) => {
    const key = JSON.stringify(at);
    const map = maps.get(key) ?? source.tile(at, signal);
    maps.delete(key); // least recently used first
    maps.set(key, map);
    keepLast(maps, MAX_MAPS);
    map.catch(() => maps.delete(key)); // a later fetch retries
    return map;
  };
}
