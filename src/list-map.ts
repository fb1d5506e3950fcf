/** Maps whose entries are lists. */

/** Adds to the list of a key. A list that is copied at every item takes quadratic time. */
export function push<K, V>(map: Map<K, V[]>, key: K, item: V): void {
  const list = map.get(key);
  if (list === undefined) map.set(key, [item]);
  else list.push(item);
}
