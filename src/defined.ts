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
