import { describe, expect, test } from 'vitest';

import { parseMesh, parseSharding } from '../../src/entries/notations.ts';
import { builtinOperators } from '../../src/entries/ops.ts';
import { DEFAULT_REQUEST, prepare } from '../../src/entries/plan.ts';
import * as main from '../../src/index.ts';
import { refusal, refusalText } from '../support/thrown.ts';

/** The functions that are called wrongly. */
const api = { ...main, prepare, parseMesh, parseSharding };
const graph = api.trace(({ x, w }) => x.matmul(w), {
  x: api.input([8, 8]),
  w: api.parameter([8, 8]),
});
const table = builtinOperators();
const request = { ...DEFAULT_REQUEST, mesh: 'dp=2', cluster: 'dgx-h100' };
/** As JavaScript calls it. */
const call = (name: string, ...args: readonly unknown[]): unknown =>
  (api as unknown as Record<string, (...given: readonly unknown[]) => unknown>)[name](...args);

async function later(run: () => unknown): Promise<string> {
  try {
    await run();
  } catch (error) {
    return refusalText(() => {
      throw error;
    });
  }
  return 'nothing was refused';
}

describe('a request', () => {
  test.each([
    ['pinss', 'pins'],
    ['memroy', 'memoryBytes'],
    ['memoryBudget', 'memoryBytes'],
    ['timeLimit', 'timeLimitSeconds'],
  ])('with a field that no request has is refused with the nearest name: %s', (field, near) => {
    const { code, message, details } = refusal(() =>
      call('prepare', graph, { ...request, [field]: 1 }, table),
    );
    expect([code, message]).toEqual(['E_REQUEST', `a request has no field '${field}'`]);
    expect(details.hint).toContain(near);
  });

  test('is refused where it lacks a field or is none, by shard and compare too', async () => {
    const { cluster: _, ...without } = request;
    expect(await later(() => call('shard', graph, without, { table }))).toBe(
      "E_REQUEST: the request does not state 'cluster'",
    );
    expect(await later(() => call('shard', graph, { ...request, recipes: false }, { table }))).toBe(
      "E_REQUEST: a request has no field 'recipes'",
    );
    expect(await later(() => call('shard', graph, undefined, { table }))).toBe(
      'E_REQUEST: the request is undefined',
    );
    expect(await later(() => call('shard', graph, { ...request, pins: 'w' }, { table }))).toBe(
      "E_REQUEST: 'pins' of the request is a string, wanted a list",
    );
    const compared = { devices: 2, table, request: { ...request, pinss: [] } };
    expect(await later(() => call('compare', graph, compared))).toBe(
      "E_REQUEST: a request has no field 'pinss'",
    );
  });
});

describe('a wrong call from JavaScript names the argument', () => {
  test.each<[string, readonly unknown[], string]>([
    ['trace', [], 'trace: the program is undefined'],
    ['trace', [(x: unknown) => x], 'trace: the list of inputs is undefined'],
    ['importGraph', [{}], 'importGraph: the content is an object'],
    ['importGraph', [undefined], 'importGraph: the content is undefined'],
    ['shard', [], 'shard: the graph is undefined'],
    ['shard', [graph, request], 'shard: the table is undefined'],
    [
      'shard',
      [{ nodes: [] }, request, { table }],
      "shard: the graph is an object without 'outputs'",
    ],
    ['prepare', [graph, request], 'prepare: the table is undefined'],
    ['verify', [graph], 'verify: the plan is undefined'],
    ['verify', [graph, { plan: {} }, table], "verify: the plan is an object without 'nodes'"],
    ['lower', [graph, null, table], 'lower: the plan is null'],
    ['simulate', [[], {}, table], 'simulate: the graph is a list'],
    ['compare', [graph], 'compare: the table is undefined'],
    ['exportPlan', [undefined, 'torch'], 'exportPlan: the source is undefined'],
    ['parseSharding', [undefined, parseMesh('dp=2')], 'parseSharding: the text is undefined'],
    ['parseMesh', [7], 'parseMesh: the text is a number'],
  ])('%s', async (name, args, message) => {
    expect(await later(() => call(name, ...args))).toBe(`E_USAGE: ${message}`);
  });
});
