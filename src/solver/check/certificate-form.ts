/**
 * Tells whether a value has the form of a certificate: certificates come from strangers, as JSON or
 * as whatever a caller holds. Written for the checker alone.
 */

const KEYS = ['version', 'problem', 'rows', 'steps', 'lists'] as const;

/** The fault of the form, with its place; undefined for a certificate in form. */
export function formFault(value: unknown): string | undefined {
  if (!isRecord(value)) return 'the certificate is not an object';
  const missing = KEYS.find((key) => !Object.hasOwn(value, key));
  if (missing !== undefined) return `$.${missing} is missing`;
  const { version, problem, rows, steps, lists } = value;
  if (version === 1) return 'it has format 1, which is not read any more: solve again';
  if (version !== 2) return `version ${shown(version)} is unknown`;
  if (typeof problem !== 'string') return `$.problem is ${shown(problem)}, not a string`;
  const extra = Object.keys(value).find((key) => !KEYS.some((known) => known === key));
  if (extra !== undefined) return `$.${extra} is not part of a certificate`;
  if (!Array.isArray(rows)) return `$.rows is ${shown(rows)}, not a list`;
  if (!Array.isArray(lists)) return `$.lists is ${shown(lists)}, not a list`;
  return rowFault(rows) ?? integerFault(steps, '$.steps') ?? listFault(lists);
}

function rowFault(rows: readonly unknown[]): string | undefined {
  for (let k = 0; k < rows.length; k++) {
    const row = rows[k];
    const [key, ...more] = isRecord(row) ? Object.entries(row) : [];
    if (key === undefined || more.length > 0 || (key[0] !== 'row' && key[0] !== 'time'))
      return `$.rows[${k}] is neither {"row": integer} nor {"time": integer}`;
    if (!Number.isSafeInteger(key[1]))
      return `$.rows[${k}].${key[0]} is ${shown(key[1])}, not an integer`;
  }
  return undefined;
}

function listFault(lists: readonly unknown[]): string | undefined {
  for (let k = 0; k < lists.length; k++) {
    const fault = integerFault(lists[k], `$.lists[${k}]`);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function integerFault(list: unknown, path: string): string | undefined {
  if (!Array.isArray(list)) return `${path} is ${shown(list)}, not a list`;
  for (let k = 0; k < list.length; k++)
    if (!Number.isInteger(list[k])) return `${path}[${k}] is ${shown(list[k])}, not an integer`;
  return undefined;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function shown(value: unknown): string {
  if (value === undefined) return 'missing';
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (value === null || typeof value === 'object') return value === null ? 'null' : 'an object';
  return typeof value === 'number' ? String(value) : `a ${typeof value}`;
}
