/**
 * The fields of a record that have a value: `{ ...defined({ hint }) }` has no `hint` where it is
 * undefined, which is what an optional field asks for under `exactOptionalPropertyTypes`.
 */
export function defined<T extends object>(
  fields: T,
): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const present: { [K in keyof T]?: Exclude<T[K], undefined> } = {};
  for (const key of Object.keys(fields) as (keyof T)[]) {
    const value = fields[key];
    if (value !== undefined) present[key] = value as Exclude<T[keyof T], undefined>;
  }
  return present;
}

/**
 * The fields of a record whose lists are not empty: `{ ...nonEmpty({ notes }) }` has no `notes`
 * where nothing was noted.
 */
export function nonEmpty<T extends Readonly<Record<string, readonly unknown[]>>>(
  lists: T,
): Partial<T> {
  const held: Partial<T> = {};
  for (const key of Object.keys(lists) as (keyof T)[])
    if (lists[key].length > 0) held[key] = lists[key];
  return held;
}
