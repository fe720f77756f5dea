// The data of the page, behind one interface: from the server, from the kernel of a notebook, or from the page itself.

/** Each query of `regard.explorer.exploration` as a method, over any transport. @param {Transport} request @returns {Source} */
export function remoteSource(request) {
  return methods(
    (name) =>
      (params = {}, signal) =>
        request(name, params, signal),
  );
}

/** An object whose methods are found by their name. @param {(name: string) => (params?: any, signal?: AbortSignal) => Promise<any>} find @returns {Source} */
export function methods(find) {
  const get = (/** @type {any} */ _, /** @type {string | symbol} */ name) =>
    typeof name === "string" && name !== "then" ? find(name) : undefined; // what has "then" is taken for a promise
  return /** @type {Source} */ (new Proxy({}, { get }));
}
