import { describe, expect, test } from 'vitest';

import * as graphs from '../../src/entries/graph.ts';
import * as local from '../../src/entries/local-spmd.ts';
import * as ops from '../../src/entries/ops.ts';
import * as plans from '../../src/entries/plan.ts';
import * as reports from '../../src/entries/report.ts';
import * as traces from '../../src/entries/trace.ts';
import { ShardwrightError } from '../../src/errors.ts';
import * as main from '../../src/index.ts';
import type { Tensor } from '../../src/trace/tensor/tensor.ts';
import { refusal, refusalText } from '../support/thrown.ts';

/** Calls that JavaScript lets through: every function of the documents, with what it does not take. */
const ODD: readonly unknown[] = [undefined, null, 5, 'x', [], {}, true, Number.NaN, new Map()];

type Call = (...args: readonly unknown[]) => unknown;

/** The functions of an entry that are called; those that have none of these names are an error. */
function named(entry: object, names: readonly string[]): [string, Call][] {
  return names.map((name) => {
    const call = (entry as Readonly<Record<string, unknown>>)[name];
    if (typeof call !== 'function') throw new Error(`no function ${name}`);
    return [name, call as Call];
  });
}

const WHOLE = [
  ...named(main, ['input', 'parameter', 'spec', 'trace', 'lower', 'verify', 'simulate']),
  ...named(graphs, ['jointGraph', 'printGraph', 'parseGraph', 'savedValues', 'trainStep']),
  ...named(graphs, ['adamw', 'adam', 'sgd', 'evaluateGraph']),
  ...named(reports, ['annotatedProgram']),
  ...named(local, ['check', 'checkTypes', 'erase', 'why', 'checkPlannedModes']),
  ...named(traces, ['customOp']),
  ...named(ops, ['checkRules']),
  ...named(plans, ['prepare', 'reopen']),
];

const TRACED = [
  ...named(traces, ['matmul', 'where', 'cat', 'stack', 'embedding', 'crossEntropy', 'mseLoss']),
  ...named(traces, ['scaledDotProductAttention', 'dropout', 'stopGradient', 'zeros', 'einsum']),
  ...named(traces, ['param', 'buffer', 'scope', 'checkpoint', 'withSharding', 'whileLoop']),
  ...named(traces, ['scan', 'cond', 'foriLoop', 'apply']),
  ...named(local, ['allReduce', 'allGather', 'reduceScatter', 'allToAll', 'convert', 'psum']),
  ...named(local, ['outPartial', 'assertType', 'axisIndex', 'axisSize', 'pvary', 'pcast']),
  ...named(local, ['contract', 'redistribute', 'reinterpret', 'permute', 'localMap']),
];

/** Throws what is not an error of Shardwright. */
async function only(run: () => unknown): Promise<void> {
  try {
    await run();
  } catch (error) {
    if (!(error instanceof ShardwrightError) || error.code === 'E_INTERNAL') throw error;
  }
}

const graph = main.trace(({ x, w }) => x.matmul(w), {
  x: main.input([4, 4]),
  w: main.parameter([4, 4]),
});

describe('a wrong call from JavaScript is refused by a code', () => {
  test.each(WHOLE)('%s', async (_, call) => {
    for (const first of [...ODD, graph])
      for (const second of ODD.slice(0, 6)) await only(() => call(first, second));
  });

  test.each(TRACED)('%s, in a program that is traced', async (_, call) => {
    // Without a value that JavaScript cannot give by mistake: a misspelt input is undefined.
    const odd = [undefined, 'x', 5];
    for (const first of odd)
      for (const second of odd)
        await only(() =>
          main.trace(
            (x) => (call(first, second), call(x, first, second), x),
            [main.input([4, 4])],
            {
              mesh: 'sp=2',
            },
          ),
        );
  });
});

test('an operand that is undefined is named with its place', () => {
  const text = refusalText(() =>
    main.trace(({ x, v }: Readonly<Record<string, Tensor>>) => x.matmul(v), {
      x: main.input([4, 4]),
    }),
  );
  expect(text).toMatch(
    /^E_TRACE_INPUT: the second operand of matmul is undefined at \S*wrong-calls\.test\.ts:\d+:\d+$/,
  );
});

test.each<[string, Call, unknown, string]>([
  ['jointGraph', graphs.jointGraph as Call, { wtr: ['w'] }, 'wrt'],
  [
    'trainStep',
    (g, o) => graphs.trainStep(g as never, graphs.sgd({ lr: 1 }), o as never),
    { keepGradient: true },
    'keepGradients',
  ],
  ['printGraph', graphs.printGraph as Call, { sources: false }, 'source'],
  ['checkTypes', local.checkTypes as Call, { mehs: 'tp=2' }, 'mesh'],
  ['erase', local.erase as Call, { type: {} }, 'types'],
  ['check', local.check as Call, { mode: 'strict', messh: 'tp=2' }, 'mesh'],
  ['adamw', (_, o) => graphs.adamw(o as never), { lr: 1, weigthDecay: 1 }, 'weightDecay'],
])(
  '%s names the option that is nearest to one that it does not have',
  (name, call, given, near) => {
    const { code, message, details } = refusal(() => call(graph, given));
    expect([code, message]).toEqual(['E_USAGE', expect.stringContaining(`${name} has no option`)]);
    expect(details.hint).toBe(`did you mean '${near}'?`);
  },
);
