/**
 * Calls functions with what JavaScript lets through: every argument in turn, and every field of a
 * record, becomes a value of another kind, while the others are what the function takes. Valid
 * arguments are found by the names of parameters, which mean the same all over the library.
 */

import * as cost from '../../src/entries/cost.ts';
import * as graphs from '../../src/entries/graph.ts';
import * as models from '../../src/entries/models.ts';
import * as notations from '../../src/entries/notations.ts';
import * as ops from '../../src/entries/ops.ts';
import { DEFAULT_REQUEST } from '../../src/entries/plan.ts';
import { IopddlError, ProblemBuilder, solveNow } from '../../src/entries/solver.ts';
import { ShardwrightError } from '../../src/errors.ts';
import * as main from '../../src/index.ts';

export type Call = (...args: readonly unknown[]) => unknown;

/** An instance that has the fields of a mesh, and is none. */
class Other {
  readonly names = ['d'];
  readonly sizes = [2];
}

function cyclic(): unknown {
  const record: Record<string, unknown> = { name: 'x' };
  record.self = record;
  record.nodes = [record];
  return record;
}

function cyclicList(): unknown[] {
  const list: unknown[] = [];
  list.push(list);
  return list;
}

function revoked(): unknown {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

const fail = (): never => {
  throw new TypeError('of the caller');
};

/** What JavaScript lets through, made anew for each call. */
export const ODD: Readonly<Record<string, () => unknown>> = {
  ...{ undefined: () => undefined, null: () => null, fraction: () => 1.5, negative: () => -1 },
  ...{ NaN: () => Number.NaN, infinity: () => Infinity, big: () => 2 ** 53, bigint: () => 10n },
  ...{ symbol: () => Symbol('s'), text: () => 'x', empty: () => '', proto: () => '__proto__' },
  ...{ true: () => true, list: () => [], 'list of null': () => [null], lists: () => [[]] },
  'list of symbols': () => [Symbol('t')],
  'list of bigints': () => [1n],
  'list of records': () => [{}],
  'list with gaps': () => [, , 1],
  'list in itself': cyclicList,
  record: () => ({}),
  'record without prototype': () => Object.create(null) as unknown,
  'record in itself': cyclic,
  'record of a length': () => ({ length: -1 }),
  getter: () => ({
    get nodes() {
      return fail();
    },
    get names() {
      return fail();
    },
  }),
  'proxy that throws': () => new Proxy({}, { get: fail, has: () => true }),
  'revoked proxy': revoked,
  map: () => new Map([[Symbol('k'), Symbol('v')]]),
  set: () => new Set([Symbol('a')]),
  instance: () => new Other(),
  date: () => new Date(Number.NaN),
  boxed: () => Object('abc') as unknown,
  function: () => () => undefined,
  bytes: () => new Uint8Array(3),
  bigints: () => new BigInt64Array(2),
  promise: () => Promise.resolve(1),
};

/** What functions take, by the names of their parameters. */
export async function validArguments(): Promise<Readonly<Record<string, unknown>>> {
  const graph = main.trace(({ x, w }) => x.matmul(w).relu().sum(), {
    x: main.input([8, 8]),
    w: main.parameter([8, 8]),
  });
  const request = { ...DEFAULT_REQUEST, mesh: 'dp=2', cluster: 'dgx-h100' };
  const result = await main.shard(graph, request);
  if (result.status !== 'planned') throw new Error('there is a plan');
  const { plan, prepared, choice, certificate } = result;
  const table = ops.builtinOperators();
  const mesh = notations.parseMesh('dp=2,tp=2');
  const layout = notations.parseLayout('(4,2):(2,1)');
  const builder = new ProblemBuilder();
  const [i, j] = [
    [1, 2],
    [3, 0],
  ].map((costs) => builder.addVariable(Float64Array.from(costs)));
  builder.addEdge(i, j, Float64Array.of(0, 1, 2, 3));
  const problem = builder.build();
  const program = main.lower(graph, plan);
  return {
    ...{ graph, joint: graph, forward: graph, backward: graph, original: graph },
    ...{ plan, request, given: request, result, opened: result, prepared, choice, certificate },
    ...{ program, off: program, on: program, table, operators: table, operators2: table },
    ...{ mesh, sharding: notations.parseSharding('S(0)R', mesh), layout, a: layout, b: layout },
    ...{ problem, solution: solveNow(problem), cluster: cost.loadCluster('dgx-h100') },
    ...{ text: 'S(0)R', shape: [8, 8], dims: ['dp'], name: 'x', order: 'colex', size: 8, rank: 2 },
    ...{ options: {}, axis: 'tp', axes: [], dim: 0, levels: [], placements: ['S(0)'], k: 0, n: 2 },
    ...{ equation: 'ab,bc->ac', coordinate: [1, 1], index: 1, devices: 8, factor: 2, offset: 0 },
    ...{ length: 4, rows: [0, 1], into: [{ name: 'a', size: 2 }], indices: [1, 2], state: 'R' },
    ...{ type: new Map([['dp', 'R']]), src: 'R', dst: 'V', op: 'all_gather', trials: [] },
    ...{ einshard: notations.resolveEinshard('a b -> a2 b', { shape: [8, 8], devices: 2 }) },
    ...{ expression: notations.parseEinshard('a b -> a2 b'), source: 'a b -> a2 b' },
    ...{ subject: { axis: 'tp', dim: 0, size: 8 }, vocabulary: 'dtensor', target: 'torch' },
    ...{ p: notations.parsePlacement('S(0)'), kinds: notations.builtinKinds(), sizes: { dp: 2 } },
    ...{ call: ops.operatorCall('aten.mm.default(f32[8,8], f32[8,8])'), preset: 'nccl' },
    ...{ record: table.get('aten.mm.default'), operator: table.get('aten.mm.default') },
    ...{ config: models.knownModelConfig('llama-3.1-8b'), tensor: 2, multiple: 128, dtype: 'f32' },
    ...{ inputs: graphs.drawInputs(table, graph), optimizer: graphs.sgd({ lr: 1 }), seed: 0 },
    ...{ fn: (x: unknown) => x, body: (x: unknown) => x, items: [{ bytes: 1, seconds: 1 }] },
    ...{ ops: [{ seconds: 1, bytes: 1 }], limitBytes: 10, slots: 3, smallest: 1, largest: 2 },
    ...{ nameOrJson: 'dgx-h100', spec: main.spec([8, 8]), steps: 3, solve: () => [], kept: [] },
    ...{ values: [], modules: [], units: [], groups: [], recipes: [], most: 4, bucketBytes: 100 },
    ...{ cfg: { name: 'f', entry: 'a', blocks: [] }, run: () => [], truth: () => true },
    ...{ names: ['w'], parameterNodes: new Set(), layers: 2, schedule: '1f1b', style: 'colwise' },
  };
}

/** The names of the parameters that a function or a constructor has. */
export function parameterNames(of: unknown): string[] {
  const text = Function.prototype.toString.call(of);
  const at = text.startsWith('class') ? text.search(/\bconstructor\s*\(/) : 0;
  if (at < 0) return [];
  const names: string[] = [];
  let [depth, name] = [0, ''];
  for (const letter of text.slice(text.indexOf('(', at))) {
    if (')]}'.includes(letter)) depth--;
    if (depth === 0 && letter === ')') break;
    if (depth === 1 && letter === ',') {
      names.push(name);
      name = '';
    } else if (depth >= 1) name += letter;
    if ('([{'.includes(letter)) depth++;
  }
  return [...names, name].map((one) => /[\w$]+/.exec(one)?.[0] ?? '').filter((one) => one !== '');
}

/** One way to call a function: which argument is what. */
export interface OddCall {
  readonly what: string;
  readonly args: readonly unknown[];
}

/**
 * The calls of a function that have one argument of another kind, or one field of a record.
 *
 * @param hasFields whether fields of records are changed, too
 */
export function* oddCalls(
  names: readonly string[],
  valid: Readonly<Record<string, unknown>>,
  kinds: readonly string[],
  hasFields: boolean,
): Generator<OddCall> {
  const given = names.map((name) => valid[name]);
  for (const [place, name] of names.entries())
    for (const kind of kinds) {
      const odd = ODD[kind]();
      yield { what: `${name} = ${kind}`, args: given.with(place, odd) };
      const whole = given[place];
      if (!hasFields || !isPlainRecord(whole)) continue;
      for (const field of Object.keys(whole))
        yield {
          what: `${name}.${field} = ${kind}`,
          args: given.with(place, { ...whole, [field]: ODD[kind]() }),
        };
    }
}

function isPlainRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return (
    typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
  );
}

/** What a call ends in that is no error of Shardwright; undefined where it returns or is refused. */
export async function strayError(run: () => unknown): Promise<unknown> {
  try {
    const made = await run();
    if (made !== null && typeof made === 'object' && 'next' in made) (made as Generator).next();
    return undefined;
  } catch (error) {
    const isOurs = error instanceof ShardwrightError && error.code !== 'E_INTERNAL';
    return isOurs || error instanceof IopddlError ? undefined : error;
  }
}
