import { describe, expect, test } from 'vitest';

import { loadCluster } from '../../src/entries/cost.ts';
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
/** What the checks of arguments look at in a plan and in what `shard` gives. */
const PLAN = { nodes: [], outputs: [], request };
const PLANNED = { plan: PLAN, prepared: {}, choice: [] };
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
    const compared = { devices: 2, cluster: 'dgx-h100', pinss: [] };
    expect(await later(() => call('compare', graph, compared))).toBe(
      "E_REQUEST: a request has no field 'pinss'",
    );
  });

  test.each<[Record<string, unknown>, string]>([
    [{ pins: 'w' }, "'pins' of the request is 'w', wanted a list"],
    [{ mesh: 8 }, "'mesh' of the request is a number, wanted a text"],
    [{ cluster: ['dgx-h100'] }, "'cluster' of the request is a list, wanted a text or a record"],
    [{ memoryBytes: '80GiB' }, "'memoryBytes' of the request is '80GiB', wanted a number"],
    [{ uneven: true }, "'uneven' of the request is a boolean, wanted one of allow, forbid"],
    [
      { solver: 'exct' },
      "'solver' of the request is 'exct', wanted one of auto, exact, highs, javascript-lp-solver, propagate",
    ],
    [{ pins: ['w'] }, "'pins[0]' of the request is 'w', wanted a record"],
    [{ pins: [{ nodes: 'w', spec: 'R' }] }, "'pins[0]' of the request has no field 'nodes'"],
    [{ pins: [{ node: 'w' }] }, "'pins[0]' of the request does not state 'spec'"],
    [
      {
        pins: [
          { node: 'w', spec: 'R' },
          { node: 'w', spec: 1 },
        ],
      },
      "'pins[1].spec' of the request is a number, wanted a text",
    ],
    [{ cuts: [{}] }, "'cuts[0]' of the request is an object, wanted a text"],
    [{ inputDims: { x: 0 } }, "'inputDims' of the request has no field 'x'"],
    [
      { inputDims: { batch: { x: 'first' } } },
      "'inputDims.batch.x' of the request is 'first', wanted a number",
    ],
    [{ padVocabulary: { rows: 8 } }, "'padVocabulary' of the request does not state 'multiple'"],
  ])('is refused where a field is not of its kind: %j', async (field, message) => {
    expect(await later(() => call('shard', graph, { ...request, ...field }))).toBe(
      `E_REQUEST: ${message}`,
    );
  });

  test('is completed: mesh and cluster are enough, and a cluster may be its record', async () => {
    const whole = await main.shard(graph, request, { table });
    const short = { mesh: 'dp=2', cluster: 'dgx-h100' };
    const byRecord = await main.shard(graph, { ...short, cluster: loadCluster('dgx-h100') });
    const derived = await main.shard(graph, { ...short, cluster: { base: 'dgx-h100' } });
    const planned = (result: main.Answer): main.Plan => {
      if (result.status === 'infeasible') throw new Error('no plan');
      return result.plan;
    };
    const { proof: _, ...plan } = planned(await main.shard(graph, short));
    const { proof: __, ...same } = planned(whole);
    expect(plan).toEqual(same);
    expect(planned(byRecord).objective).toEqual(plan.objective);
    expect(planned(derived).objective).toEqual(plan.objective);
    expect(JSON.parse(planned(byRecord).request.cluster)).toEqual(loadCluster('dgx-h100'));
  });
});

describe('a wrong call from JavaScript names the argument', () => {
  test.each<[string, readonly unknown[], string]>([
    ['trace', [], 'trace: the program is undefined'],
    ['trace', [(x: unknown) => x], 'trace: the list of inputs is undefined'],
    ['importGraph', [{}], 'importGraph: the content is an object'],
    ['importGraph', [undefined], 'importGraph: the content is undefined'],
    ['shard', [], 'shard: the graph is undefined'],
    ['shard', [graph, request, { table: {} }], "shard: the table is an object without 'get'"],
    ['shard', [graph, request, null], 'shard: the record of options is null'],
    ['shard', [graph, request, { tabel: 1 }], "shard has no option 'tabel'"],
    [
      'shard',
      [{ nodes: [] }, request, { table }],
      "shard: the graph is an object without 'outputs'",
    ],
    ['prepare', [graph, request, 7], 'prepare: the table is a number'],
    ['verify', [graph], 'verify: the plan is undefined'],
    ['verify', [graph, { plan: {} }], "verify: the plan is an object without 'nodes'"],
    ['verify', [graph, PLAN, table], "verify has no option 'records'"],
    ['lower', [graph, null], 'lower: the plan is null'],
    ['lower', [graph, PLAN, 1], 'lower: the record of options is a number'],
    ['simulate', [[], {}], 'simulate: the graph is a list'],
    ['simulate', [graph, PLAN, { order: 'auto', bucket: 1 }], "simulate has no option 'bucket'"],
    ['compare', [], 'compare: the graph is undefined'],
    [
      'compare',
      [graph, { devices: 8, cluster: 'x' }, { plan: [] }],
      "compare has no option 'plan'",
    ],
    ['audit', [graph], 'audit: the plan is undefined'],
    ['audit', [graph, PLAN, { edit: 1 }], "audit has no option 'edit'"],
    ['explain', [{ status: 'infeasible' }, 'w'], "explain: the result is an object without 'plan'"],
    ['explain', [PLANNED], 'explain: the node is undefined'],
    ['exportPlan', [graph, PLAN], 'exportPlan: the target is undefined'],
    ['exportPlan', [graph, 'torch'], 'exportPlan: the plan is a string'],
    ['exportPlan', [graph, PLAN, 'torch', { lossy: true }], "exportPlan has no option 'lossy'"],
    ['importGraph', ['', { formt: 'fx' }], "importGraph has no option 'formt'"],
    ['trace', [(x: unknown) => x, [], { mash: 'tp=2' }], "trace has no option 'mash'"],
    ['input', [8, 16], 'input: the shape is a number'],
    ['parameter', [], 'parameter: the shape is undefined'],
    ['spec', [{ shape: [8] }], 'spec: the shape is an object'],
    ['dim', [8], 'dim: the name is a number'],
    ['parseSharding', [undefined, parseMesh('dp=2')], 'parseSharding: the text is undefined'],
    ['parseMesh', [7], 'parseMesh: the text is a number'],
  ])('%s', async (name, args, message) => {
    expect(await later(() => call(name, ...args))).toBe(`E_USAGE: ${message}`);
  });
});
