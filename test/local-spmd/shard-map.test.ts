import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { describe, expect, test } from 'vitest';

import { jointGraph, type Node } from '../../src/entries/graph.ts';
import {
  allGather,
  allGatherInvariant,
  allReduce,
  axisIndex,
  checkTypes,
  contract,
  jaxAllGather,
  jaxAllToAll,
  localMap,
  pcast,
  ppermute,
  psum,
  psumScatter,
  pvary,
  reduceScatter,
} from '../../src/entries/local-spmd.ts';
import { type AxisType, type PrimitiveName, transposeOf } from '../../src/entries/notations.ts';
import { cat, scan } from '../../src/entries/trace.ts';
import { type Graph, input, ShardwrightError, type Tensor, trace } from '../../src/index.ts';
import { collectiveOf } from '../../src/mesh/local-types/primitives.ts';
import { bucketProgram } from '../../src/simulate/timeline/bucket-program.ts';
import { hloOf, members, regionsOf } from './support/hlo.ts';
import {
  isRefusal,
  type JaxAnswers,
  type JaxCollective,
  type JaxState,
  readAnswers,
} from './support/recorded.ts';
import { collectivesOf } from './support/simulated.ts';

/**
 * Per-device programs against `shard_map(check_vma=True)` of JAX 0.10.2 on CPU devices, as
 * recorded: types of every primitive on every state, types of operators, whole programs. Every
 * difference is listed with its reason.
 */
const jax = readAnswers<JaxAnswers>(
  readFileSync(fileURLToPath(new URL('../fixtures/local-spmd/shard-map.json.gz', import.meta.url))),
);
const STATES: readonly JaxState[] = ['V', 'I', 'R', 'U'];

/** The primitives by JAX's names, each in the words of this library. */
const PRIMITIVES: Readonly<Record<string, (x: Tensor) => Tensor>> = {
  psum: (x) => psum(x, 'tp'),
  pvary: (x) => pvary(x, 'tp'),
  pcast_varying: (x) => pcast(x, 'tp', { to: 'varying' }),
  pcast_reduced: (x) => pcast(x, 'tp', { to: 'reduced' }),
  pcast_unreduced: (x) => pcast(x, 'tp', { to: 'unreduced' }),
  all_gather: (x) => jaxAllGather(x, 'tp', { tiled: true }),
  all_gather_reduced: (x) => allGather(x, 'tp', { src: 'S(0)', dst: 'R' }),
  all_gather_invariant: (x) => allGatherInvariant(x, 'tp', { tiled: true }),
  psum_scatter: (x) => psumScatter(x, 'tp', { tiled: true }),
  unreduced_psum: (x) => allReduce(x, 'tp', { dst: 'I' }),
  unreduced_psum_scatter: (x) => reduceScatter(x, 'tp', { dst: 'S(0)' }),
  all_to_all: (x) => jaxAllToAll(x, 'tp', 0, 1),
  ppermute: (x) =>
    ppermute(x, 'tp', [
      [0, 1],
      [1, 0],
    ]),
  axis_index: () => axisIndex('tp').reshape([1]),
};

/** Collectives in the transposes that JAX prints; the rest of their names cast, slice or add. */
const TRANSPOSED: Readonly<Record<string, string>> = {
  psum_invariant: 'all_reduce',
  unreduced_psum: 'all_reduce',
  all_gather: 'all_gather',
  all_gather_reduced: 'all_gather',
  reduce_scatter: 'reduce_scatter',
  unreduced_reduce_scatter: 'reduce_scatter',
  all_to_all: 'all_to_all',
  ppermute: 'permute',
};

/** Collectives that the gradient of a node runs. */
function gradientCollectives({ target, args }: Node): string[] {
  const op = /^spmd_types\.(\w+)\.default$/.exec(target)?.[1];
  if (op === undefined || op === 'axis_index') return [];
  if (op === 'permute') return ['permute'];
  const [, , , src, dst] = args as unknown as readonly [
    unknown,
    unknown,
    unknown,
    AxisType,
    AxisType,
  ];
  return transposeOf({ op: op as PrimitiveName, src, dst }).flatMap(
    (p) => collectiveOf(p.op) ?? [],
  );
}

/** Specs of a whole tensor whose pieces are of a state. */
const SPECS: Readonly<Record<JaxState, { readonly tp: AxisType }>> = {
  V: { tp: 'S(0)' },
  I: { tp: 'I' },
  R: { tp: 'R' },
  U: { tp: 'P' },
};

/** State of what a body makes of its operands: the only claim that its region accepts. */
function stateOf(
  body: (...x: Tensor[]) => Tensor,
  held: readonly JaxState[],
  autoCast: boolean,
): { readonly state: JaxState; readonly graph: Graph } | undefined {
  const inSpecs = held.map((h) => SPECS[h]);
  const inputs = held.map((h) => input(h === 'V' ? [8, 4] : [4, 4], 'f32'));
  // With casts a claim of R takes an I, and a claim of V both: the narrowest comes first.
  for (const state of ['I', 'R', 'U', 'V'] as const)
    try {
      const options = { inSpecs, outSpecs: SPECS[state], autoCast };
      return {
        state,
        graph: trace((...x: Tensor[]) => localMap(body, options)(...x), inputs, {
          mesh: 'tp=2',
          // What is tried are types; the bodies draw nothing and count nothing.
          checkTwice: false,
        }),
      };
    } catch (error) {
      if (!(error instanceof ShardwrightError) || error.code !== 'E_SPMD_TYPE') throw error;
    }
  return undefined;
}

/**
 * What this library says of one primitive on one state: the state of the result and the collectives
 * of its gradient.
 */
function ours(name: string, held: JaxState, autoCast: boolean): string {
  const found = stateOf(PRIMITIVES[name], [held], autoCast);
  if (found === undefined) return 'refused';
  const [body] = Object.values(found.graph.subgraphs);
  return [found.state, ...[...body.nodes].reverse().flatMap(gradientCollectives)].join(' ');
}

function theirs(name: string, held: JaxState, autoCast: boolean): string {
  const answer = (autoCast ? jax.implicit : jax.primitives)[name][held];
  if (isRefusal(answer)) return 'refused';
  return [answer.type, ...(answer.transpose ?? []).flatMap((n) => TRANSPOSED[n] ?? [])].join(' ');
}

describe('primitives of shard_map', () => {
  test.each([
    // JAX gathers what is equal already, unasked.
    ['without casts', false, { 'all_gather_invariant of I': 'refused here, I all_reduce there' }],
    ['with the casts that are inserted', true, {}],
  ] as const)(
    'each on each state, %s: the same type or the same refusal, and the same collectives in the gradient',
    (_, autoCast, expected) => {
      const different: Record<string, string> = {};
      for (const name of Object.keys(jax.primitives))
        for (const held of STATES) {
          const [a, b] = [ours(name, held, autoCast), theirs(name, held, autoCast)];
          if (a !== b) different[`${name} of ${held}`] = `${a} here, ${b} there`;
        }
      expect(different).toEqual(expected);
    },
  );
});

describe('verbs that take what their operand is', () => {
  const made = (
    body: (x: Tensor, y: Tensor) => Tensor,
    mesh = 'tp=2',
    outSpecs = 'P(None)',
  ): Graph =>
    trace(
      (x, y) =>
        localMap((x: Tensor, y: Tensor) => body(x, y), {
          axes: ['tp'],
          inSpecs: ['P("tp")', 'P(None)'],
          outSpecs,
        })(x, y),
      [input([8], 'f32'), input([8], 'f32')],
      { mesh },
    );
  const verbs = ({ nodes }: Graph): string[] =>
    nodes.flatMap(({ target, args }) =>
      target.startsWith('spmd_types.')
        ? [`${target.slice(11, -8)} ${args.slice(3).map(String).join('→')}`]
        : [],
    );
  const bodies = (graph: Graph): string[] =>
    Object.values(graph.subgraphs).flatMap((body) => [...verbs(body), ...bodies(body)]);

  test('a sum reads pieces as addends, takes addends as they are, and reads what is equal as pieces', () => {
    expect(bodies(made((x) => psum(x, 'tp')))).toEqual(['reinterpret V→P', 'all_reduce P→I']);
    expect(bodies(made((x) => psum(pcast(x, 'tp', { to: 'unreduced' }), 'tp')))).toEqual([
      'reinterpret V→P',
      'all_reduce P→I',
    ]);
    expect(bodies(made((_, y) => psum(y, 'tp')))).toEqual([
      'reinterpret I→V',
      'reinterpret V→P',
      'all_reduce P→I',
    ]);
    expect(
      bodies(
        made(
          (_, y) => pcast(pcast(y, 'tp', { to: 'reduced' }), 'tp', { to: 'varying' }),
          'tp=2',
          'P("tp")',
        ),
      ),
    ).toEqual(['convert I→R', 'reinterpret R→V']);
  });
  test('in the body of a loop, in a region inside a region, and on an axis of one rank', () => {
    const looped = made((x, y) =>
      psum(
        scan(
          (sum: Tensor, _: Tensor) =>
            [pvary(psum(pcast(sum, 'tp', { to: 'unreduced' }), 'tp'), 'tp'), sum] as const,
          x,
          y,
        )[0],
        'tp',
      ),
    );
    expect(bodies(looped)).toEqual([
      'reinterpret V→P',
      'all_reduce P→I',
      'reinterpret V→P',
      'all_reduce P→I',
      'reinterpret I→V',
    ]);
    const inner = made(
      (x) =>
        localMap((z: Tensor) => psum(psum(z, 'tp'), 'dp'), {
          axes: ['dp'],
          inSpecs: ['P("dp")'],
          outSpecs: 'P(None)',
        })(x),
      'dp=2,tp=2',
    );
    expect(bodies(inner).join()).not.toContain('|');
    expect(bodies(made((x) => psum(x, 'tp'), 'tp=1')).join()).not.toContain('|');
    expect(
      bodies(
        jointGraph(
          made((x) => psum(x, 'tp'), 'tp=1'),
          { wrt: ['arg0'] },
        ),
      ).join(),
    ).not.toContain('|');
  });
  test.each([
    [
      'a sum of R',
      (_: Tensor, y: Tensor) => psum(pcast(y, 'tp', { to: 'reduced' }), 'tp'),
      'the operand must be V or P or I, got R',
      'reinterpret(convert, "tp", R→V)',
    ],
    [
      'a cast of V',
      (x: Tensor) => pcast(x, 'tp', { to: 'varying' }),
      'the operand must be I or R, got V',
      'varies already',
    ],
    [
      'a gather of addends',
      (x: Tensor) => jaxAllGather(pcast(x, 'tp', { to: 'unreduced' }), 'tp', { tiled: true }),
      'the operand must be S(0) or I, got P',
      'all_reduce(reinterpret, "tp", P→I)',
    ],
  ] as const)('%s is refused with what to write', (_, body, found, fix) => {
    const error = refusedWith(() => made(body));
    expect(error.message).toContain(found);
    expect(error.details.hint).toContain(fix);
  });
});

/** The operators of run_shard_map.py. */
const OPERATORS: Readonly<Record<string, (x: Tensor, y: Tensor) => Tensor>> = {
  neg: (x) => x.neg(),
  cos: (x) => x.cos(),
  tanh: (x) => x.tanh(),
  transpose: (x) => x.transpose(0, 1),
  reshape: (x) => x.reshape([16]),
  reduce_sum: (x) => x.sum(0),
  reduce_max: (x) => x.amax(0),
  add: (x, y) => x.add(y),
  sub: (x, y) => x.sub(y),
  mul: (x, y) => x.mul(y),
  div: (x, y) => x.div(y),
  max: (x, y) => x.maximum(y),
  dot: (x, y) => x.matmul(y),
  concatenate: (x, y) => cat([x, y], 0),
};

/** Where JAX says something else than the laws of per-device values, and why. */
function operatorDifference(
  name: string,
  held: string,
  b: string,
  implicit: boolean,
): string | undefined {
  if (b === 'refused' && !implicit && ['VR', 'RV'].includes(held))
    return 'without casts JAX keeps R and V apart';
  if (b === 'refused' && ['neg', 'sub'].includes(name))
    return 'JAX has no rule yet for addends in it, which are linear';
  if (b === 'refused' && /^(UR|U|RU)$/.test(held) && ['div', 'dot', 'matmul'].includes(name))
    return 'JAX has no rule yet for addends in it, which are linear';
  if (['reduce_max', 'dot', 'concatenate'].includes(name) && b !== 'refused')
    return 'JAX drops or mixes the marks R and U in it';
  if (b === 'refused' && name === 'concatenate')
    return 'JAX has no rule yet for addends in it, which are linear';
  return undefined;
}

describe('operators of shard_map', () => {
  test.each([
    [
      'without casts',
      false,
      {
        same: 110,
        'without casts JAX keeps R and V apart': 14,
        'JAX has no rule yet for addends in it, which are linear': 5,
        'JAX drops or mixes the marks R and U in it': 11,
      },
    ],
    [
      'with the casts that are inserted',
      true,
      {
        same: 124,
        'JAX has no rule yet for addends in it, which are linear': 5,
        'JAX drops or mixes the marks R and U in it': 11,
      },
    ],
  ] as const)('each on each combination of states, %s', (_, implicit, expected) => {
    const wrong: string[] = [];
    const counts: Record<string, number> = { same: 0 };
    const table = implicit ? jax.implicit_operators : jax.operators;
    for (const [name, answers] of Object.entries(table))
      for (const [held, answer] of Object.entries(answers)) {
        const a =
          stateOf((x, y) => OPERATORS[name](x, y), [...held] as JaxState[], implicit)?.state ??
          'refused';
        const b = isRefusal(answer) ? 'refused' : answer.type;
        const reason = a === b ? 'same' : operatorDifference(name, held, b, implicit);
        if (reason === undefined) wrong.push(`${name}(${held}): ${a} here, ${b} there`);
        else counts[reason] = (counts[reason] ?? 0) + 1;
      }
    expect(wrong).toEqual([]);
    expect(counts).toEqual(expected);
  });
});

const SBI = input([4, 2, 8], 'f32');
const IO = input([8, 16], 'f32');

/** The column-parallel linear of run_shard_map.py. */
function column(cast: boolean, outSpecs = 'P(None,None,"tp")'): Graph {
  const body = (x: Tensor, w: Tensor): Tensor =>
    contract('sbi,io->sbo', cast ? pvary(x, 'tp') : x, w);
  const options = { inSpecs: ['P(None,None,None)', 'P(None,"tp")'], outSpecs, autoCast: false };
  return trace((x, w) => localMap(body, options)(x, w), [SBI, IO], { mesh: 'tp=2' });
}

function refusedWith(run: () => unknown): ShardwrightError {
  try {
    run();
  } catch (error) {
    if (error instanceof ShardwrightError && error.code === 'E_SPMD_TYPE') return error;
    throw error;
  }
  throw new Error('accepted');
}

const refused = (run: () => unknown): boolean => {
  try {
    run();
  } catch (error) {
    if (error instanceof ShardwrightError && error.code === 'E_SPMD_TYPE') return true;
    throw error;
  }
  return false;
};

describe('programs of shard_map', () => {
  test('the types that both print in a column-parallel linear', () => {
    const inside = [...checkTypes(column(true)).texts]
      .filter(([name]) => name.includes('/'))
      .map(([, text]) => text);
    const { input: x, weight, cast, output } = jax.programs.column;
    expect(inside).toEqual([x, weight, cast, output]);
  });
  test('both refuse the same programs', () => {
    const {
      column_no_cast: noCast,
      column_out_replicated: replicated,
      scan_swap: swap,
    } = jax.programs;
    expect([noCast, replicated, swap].every(isRefusal)).toBe(true);
    expect(refused(() => column(false))).toBe(true);
    expect(refused(() => column(true, 'P(None)'))).toBe(true);
    const swapped = (cast: boolean): Graph => {
      const body = (x: Tensor, y: Tensor): Tensor => {
        const step = ([a, b]: readonly [Tensor, Tensor]) => [[b, a] as const, a] as const;
        return scan(step, [x, cast ? pvary(y, 'tp') : y] as const, [], { length: 3 })[0][0];
      };
      const options = { inSpecs: ['P("tp")', 'P(None)'], outSpecs: 'P("tp")', autoCast: false };
      return trace(
        (x, y) => localMap(body, options)(x, y),
        [input([4], 'f32'), input([2], 'f32')],
        { mesh: 'tp=2' },
      );
    };
    expect(refused(() => swapped(false))).toBe(true);
    expect(refused(() => swapped(true))).toBe(false);
    expect(jax.programs.scan_swap_cast.accepted).toEqual(['f32[2]{V:tp}', 'f32[2]{V:tp}']);
  });
});

/**
 * Column, relu and row with a sum over tp, on dp=2,tp=2, as run_shard_map.py has it; `cut`: the
 * rows of x lie on dp.
 */
function mlp(cut: boolean): Graph {
  const rows = cut ? 'P("dp", None)' : 'P(None, None)';
  const body = (x: Tensor, w1: Tensor, w2: Tensor): Tensor => {
    const own = (w: Tensor): Tensor => (cut ? pvary(w, 'dp') : w);
    return psum(pvary(x, 'tp').matmul(own(w1)).relu().matmul(own(w2)), 'tp');
  };
  const options = { inSpecs: [rows, 'P(None, "tp")', 'P("tp", None)'], outSpecs: rows };
  const inputs = [input([8, 16], 'f32'), input([16, 32], 'f32'), input([32, 16], 'f32')] as const;
  return trace((x, w1, w2) => localMap(body, options)(x, w1, w2), inputs, { mesh: 'dp=2,tp=2' });
}

/**
 * Two half blocks with residuals, as run_shard_map.py has them; `sequence`: the rows between them
 * lie on tp.
 */
function block(sequence: boolean): Graph {
  const half = (x: Tensor, w1: Tensor, w2: Tensor): Tensor => {
    if (!sequence) return x.add(psum(pvary(x, 'tp').matmul(w1).tanh().matmul(w2), 'tp'));
    const whole = allGather(x, 'tp', { src: 'S(0)', dst: 'R' });
    return x.add(psumScatter(whole.matmul(w1).tanh().matmul(w2), 'tp', { dim: 0, tiled: true }));
  };
  const body = (...[x, w1, w2, w3, w4]: Tensor[]): Tensor => half(half(x, w1, w2), w3, w4);
  const between = sequence ? 'P("tp", None)' : 'P(None, None)';
  const weights = ['P(None, "tp")', 'P("tp", None)', 'P(None, "tp")', 'P("tp", None)'];
  const options = { inSpecs: [between, ...weights], outSpecs: between };
  const inputs = [
    [8, 16],
    [16, 32],
    [32, 16],
    [16, 32],
    [32, 16],
  ].map((shape) => input(shape, 'f32'));
  return trace((...x: Tensor[]) => localMap(body, options)(...x), inputs, { mesh: 'tp=2' });
}

describe('collectives of the compiled programs of shard_map', () => {
  const hlo = (graph: Graph): JaxCollective[][] => regionsOf(graph).map(hloOf);
  const ALL = ['arg0', 'arg1', 'arg2'];

  test.each([
    ['nothing cut on dp', false, jax.programs.mlp_uncut],
    ['rows cut on dp', true, jax.programs.mlp_cut],
  ] as const)('%s: kinds, groups and shapes, forward and gradient', (_name, cut, answer) => {
    expect(hlo(mlp(cut))).toEqual([answer.forward]);
    const [forward, backward] = hlo(jointGraph(mlp(cut), { wrt: ALL }));
    expect(forward).toEqual(answer.forward);
    expect(members(backward)).toEqual(members(answer.gradient_all));
    const [, weights = []] = hlo(jointGraph(mlp(cut), { wrt: ['arg1', 'arg2'] }));
    expect(members(weights)).toEqual(members(answer.gradient_weights));
  });

  test('in buckets there are as many all_reduces as XLA has, of as many numbers', () => {
    const elements = (shapes: readonly string[]): number =>
      shapes.reduce(
        (sum, text) =>
          sum + (/\[(.*)\]/.exec(text)?.[1] ?? '').split(',').reduce((n, d) => n * Number(d), 1),
        0,
      );
    const counted = (list: readonly JaxCollective[]): string[] =>
      list
        .map(([kind, groups, shapes]) => `${kind} ${JSON.stringify(groups)} ${elements(shapes)}`)
        .sort();
    for (const [wrt, answer] of [
      [ALL, jax.programs.mlp_cut.gradient_all],
      [['arg1', 'arg2'], jax.programs.mlp_cut.gradient_weights],
    ] as const) {
      const [, backward] = regionsOf(jointGraph(mlp(true), { wrt }));
      expect(counted(hloOf(bucketProgram(backward, 25 * 2 ** 20)))).toEqual(counted(answer));
    }
  });

  test.each([
    ['without', false, jax.programs.block],
    ['with', true, jax.programs.block_sequence],
  ] as const)(
    'a block %s sequence parallelism: the collectives of XLA, forward and with the gradient',
    (_name, sequence, answer) => {
      expect(hlo(block(sequence))).toEqual([answer.forward]);
      const both = hlo(jointGraph(block(sequence), { wrt: [...ALL, 'arg3', 'arg4'] })).flat();
      expect(members(both)).toEqual(members(answer.both));
    },
  );

  test('a weight that a scan uses is reduced once if it is cast before the loop, else in each trip, as in JAX', () => {
    const loss = (cast: 'before' | 'inside' | 'auto'): Graph => {
      const body = (x: Tensor, w: Tensor): Tensor => {
        const own = cast === 'before' ? pvary(w, 'dp') : w;
        const step = (total: Tensor, row: Tensor) =>
          [
            total.add(
              row
                .matmul(cast === 'inside' ? pvary(own, 'dp') : own)
                .tanh()
                .sum(),
            ),
            row,
          ] as const;
        return scan(step, x.sum().mul(0), x)[0].reshape([1]);
      };
      return trace(
        (x, w) =>
          localMap(body, { inSpecs: ['P(None, "dp")', 'P(None)'], outSpecs: 'P("dp")' })(x, w),
        [input([3, 4, 5], 'f64'), input([5, 6], 'f64')],
        { mesh: 'dp=2' },
      );
    };
    const reduced = (cast: 'before' | 'inside' | 'auto'): number =>
      collectivesOf(jointGraph(loss(cast), { wrt: ['arg1'] }))[1].length;
    expect({ before: reduced('before'), inside: reduced('inside'), auto: reduced('auto') }).toEqual(
      jax.programs.microbatches,
    );
  });

  test('both move the same bytes', () => {
    // Of a ring of n: a reduction moves 2 (n - 1) / n of the tensor, a gather and a scatter (n - 1)
    // / n each.
    const share: Readonly<Record<string, number>> = {
      'all-reduce': 2,
      'all-gather': 1,
      'reduce-scatter': 2,
    };
    const moved = (graph: Graph): number[] =>
      hlo(jointGraph(graph, { wrt: [...ALL, 'arg3', 'arg4'] })).map((list) =>
        list.reduce((sum, [kind, [group], [shape]]) => {
          const rows = (/\[(.*)\]/.exec(shape)?.[1] ?? '')
            .split(',')
            .reduce((n, d) => n * Number(d), 1);
          // A scatter's result is one part of its operand.
          return (
            sum +
            (share[kind] *
              rows *
              (kind === 'reduce-scatter' ? group.length / 2 : 1) *
              (group.length - 1)) /
              group.length
          );
        }, 0),
      );
    expect(moved(block(true))).toEqual(moved(block(false)));
  });
});
