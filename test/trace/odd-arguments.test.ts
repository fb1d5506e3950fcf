import { readdirSync } from 'node:fs';

import { expect, test } from 'vitest';

import { messageOf } from '../../src/errors.ts';
import { FULL } from '../support/full.ts';
import {
  type Call,
  ODD,
  oddCalls,
  parameterNames,
  strayError,
  validArguments,
} from '../support/odd-arguments.ts';

/** Groups of functions. */
const GROUPS = ['functional', 'megatron', 'sizes'];
/** The page's entry serves the page alone; the package does not have it. */
const ENTRIES = readdirSync('src/entries').filter((name) => name !== 'page.ts');
/** Calls that JavaScript's odd values do not keep from working for seconds. */
const SLOW = [
  ...['audit', 'buildModel', 'checkRules', 'compare', 'memoryFrontier', 'overlapPlan'],
  ...['searchOverlap', 'shard', 'shardPrepared', 'solveAnytime'],
];

const modules = await Promise.all(
  ['index.ts', ...ENTRIES.map((name) => `entries/${name}`)].map(
    async (path) => (await import(`../../src/${path}`)) as object,
  ),
);
const EXPORTED = modules
  .flatMap((entry) => Object.entries(entry))
  .flatMap(([name, value]: [string, unknown]) =>
    GROUPS.includes(name) ? Object.entries(value as object) : [[name, value] as const],
  )
  .filter((one): one is [string, Call] => typeof one[1] === 'function');
const valid = await validArguments();

function callOf(value: Call): Call {
  if (!Function.prototype.toString.call(value).startsWith('class')) return value;
  return (...args) =>
    new (value as unknown as new (...args: readonly unknown[]) => unknown)(...args);
}

/** What calls with these kinds end in that is no error of Shardwright, each once. */
async function strays([name, value]: [string, Call], kinds: readonly string[]): Promise<string[]> {
  const found = new Set<string>();
  for (const { what, args } of oddCalls(
    parameterNames(value),
    valid,
    kinds,
    !SLOW.includes(name),
  )) {
    const error = await strayError(() => callOf(value)(...args));
    if (error !== undefined) found.add(`${name}, ${what}: ${messageOf(error)}`);
  }
  return [...found];
}

test('the generator knows the parameters of functions and classes, and what many of them take', () => {
  const names = (of: string): string[] =>
    parameterNames(EXPORTED.find(([name]) => name === of)?.[1]);
  expect(names('localShape')).toEqual(['sharding', 'mesh', 'shape']);
  expect(names('Sharding')).toEqual(['placements', 'orders']);
  const all = EXPORTED.flatMap(([, value]) => parameterNames(value));
  const known = all.filter((name) => valid[name] !== undefined);
  expect(EXPORTED.length).toBeGreaterThan(400);
  expect(known.length / all.length).toBeGreaterThan(0.6);
});

test('no function ends in an error of JavaScript where an argument, or a field of a record, is odd', async () => {
  const found: string[] = [];
  const kinds = Object.keys(ODD);
  for (const [at, one] of EXPORTED.entries())
    if (!SLOW.includes(one[0])) found.push(...(await strays(one, [kinds[at % kinds.length]])));
  expect(found).toEqual([]);
});

test.runIf(FULL)(
  'no function ends in an error of JavaScript with any of the odd values',
  { timeout: 900_000 },
  async () => {
    const found: string[] = [];
    for (const one of EXPORTED) found.push(...(await strays(one, Object.keys(ODD))));
    expect(found).toEqual([]);
  },
);
