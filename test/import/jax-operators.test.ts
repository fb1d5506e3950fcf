import { describe, expect, test } from 'vitest';

import { inspectGraph } from '../../src/cli/commands/reading/inspect.ts';
import { lintGraph } from '../../src/graph/lint.ts';
import type { Graph } from '../../src/graph/types.ts';
import { importGraph, importModel } from '../../src/import/import.ts';
import { fromList, type NDArray } from '../../src/ndarray/array.ts';
import { complexOf, partsOf } from '../../src/ndarray/complex.ts';
import { evaluateCall } from '../../src/ops/kernels/evaluate.ts';
import { randomPlan } from '../../src/plan/choice/random-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';
import { verify } from '../../src/simulate/verify.ts';
import { request, TABLE } from '../plan/support.ts';
import { infer, jaxText, table } from './support-jax.ts';

/**
 * Programs recorded with JAX 0.10.2 on a CPU, imported from both texts and evaluated on the
 * recorded inputs.
 */

interface Recorded {
  readonly shape: readonly number[];
  readonly values: readonly number[];
}
interface Parts {
  readonly shape: readonly number[];
  readonly re: readonly number[];
  readonly im: readonly number[];
}
interface Program {
  readonly jaxpr: string;
  readonly stablehlo: string;
  readonly args: readonly Recorded[];
  readonly results: readonly Recorded[];
}
const record = JSON.parse(jaxText('operators.json.gz')) as {
  readonly programs: Readonly<Record<string, Program>>;
  readonly transforms: readonly { kind: string; length: number[]; x: Parts; y: Parts }[];
};

function run(graph: Graph, program: Program): NDArray[] {
  const inputs = program.args.map(({ shape, values }) => fromList(shape, values, 'f32'));
  return evaluateGraph(table, graph, inputs).outputs.map((value) => value as NDArray);
}

function close(got: readonly number[], want: readonly number[]): void {
  expect(got.length).toBe(want.length);
  got.forEach((v, i) => {
    expect(Math.abs(v - want[i])).toBeLessThanOrEqual(2e-6 * Math.max(1, Math.abs(want[i])));
  });
}

const programs = Object.entries(record.programs);
/**
 * JAX draws them with Threefry or Philox, we with our own generator: only their range can be
 * compared.
 */
const isRandom = (name: string): boolean => name.startsWith('random-');
/** Lowered to LAPACK's functions on a CPU, which are custom calls. */
const isLapack = (name: string): boolean => /cholesky|triangular/.test(name);

describe('programs of JAX give the values that JAX gives', () => {
  test.each(programs.filter(([name]) => !isRandom(name)))('jaxpr %s', (_, program) => {
    const { graph, counts, format } = importModel(program.jaxpr, { infer });
    expect(inspectGraph(graph, table, format, counts).unknownOps).toEqual([]);
    lintGraph(graph, infer);
    run(graph, program).forEach((x, i) => {
      expect(x.shape).toEqual(program.results[i].shape);
      close(x.toArray(), program.results[i].values);
    });
  });

  // The 64-bit state of Philox is cast from pairs of words, which is not evaluated.
  test.each(programs.filter(([name]) => !isLapack(name) && name !== 'random-rbg'))(
    'StableHLO %s',
    (_, program) => {
      const graph = importGraph(program.stablehlo, { infer });
      run(graph, program).forEach((x, i) => {
        close(x.toArray(), program.results[i].values);
      });
    },
  );

  test.each(programs.filter(([name]) => isLapack(name)))(
    'StableHLO %s: the function of LAPACK is named as unknown',
    (_, { stablehlo }) => {
      const { graph, counts, format } = importModel(stablehlo, { infer });
      expect(inspectGraph(graph, table, format, counts).unknownOps.join()).toMatch(
        /lapack_s(potrf|trsm)_ffi/,
      );
    },
  );
});

describe('plans drawn at random compute on simulated devices what one device does', () => {
  const names = [
    'max-pool-gradient',
    'avg-pool-gradient',
    'rfft-gradient',
    'fft2',
    'irfft',
    'random-split',
    'complex',
  ];
  test.each(names)('%s', (name) => {
    const graph = importGraph(record.programs[name].jaxpr, { infer });
    for (const mesh of ['d=2', 'd=2,e=2']) {
      const prepared = prepare(graph, request(mesh), TABLE);
      for (const seed of [1, 2, 3]) {
        const found = verify(graph, randomPlan(prepared, seed), { table: TABLE, seed });
        expect(found.mismatches).toEqual([]);
        expect(found.outputsCompared).toBeGreaterThan(0);
      }
    }
  });
});

describe('random numbers of JAX', () => {
  const uniform = ['random-old', 'random-fold', 'random-rbg'];

  test.each(programs.filter(([name]) => isRandom(name)))(
    '%s: known operators, equal numbers each time',
    (name, program) => {
      const { graph, counts, format } = importModel(program.jaxpr, { infer });
      expect(inspectGraph(graph, table, format, counts).unknownOps).toEqual([]);
      lintGraph(graph, infer);
      const [x] = run(graph, program);
      expect(x.shape).toEqual(program.results[0].shape);
      expect(run(graph, program)[0].toArray()).toEqual(x.toArray());
      if (!uniform.includes(name)) return;
      const drawn = x.toArray().map((v, i) => v - program.args[0].values[i]);
      expect(drawn.every((v) => v >= -1e-6 && v < 1)).toBe(true);
      expect(new Set(drawn).size).toBe(drawn.length);
    },
  );

  test('numbers differ by the seed, and by the number that is folded in', () => {
    const { jaxpr, args, results } = record.programs['random-fold'];
    const drawn = [
      jaxpr,
      jaxpr.replace(' 5:i32[]', ' 6:i32[]'),
      jaxpr.replace(' 2:u32[]', ' 3:u32[]'),
    ].map((text) =>
      run(importGraph(text, { infer }), { jaxpr: text, stablehlo: '', args, results })[0]
        .toArray()
        .join(),
    );
    expect(new Set(drawn).size).toBe(3);
  });
});

describe('texts', () => {
  test('a jaxpr that stands behind its caller is found; one that calls itself is refused', () => {
    const { jaxpr } = record.programs['caller-before-callee'];
    expect(jaxpr.indexOf('jaxpr=_where')).toBeLessThan(jaxpr.indexOf('let _where'));
    const graph = importGraph(jaxpr, { infer });
    expect(graph.nodes.filter((n) => n.target === 'call').length).toBe(2);
    const endless =
      'let f = { lambda ; a:f32[2]. let b:f32[2] = jit[name=f jaxpr=f] a in (b,) } in\n{ lambda ; a:f32[2]. let b:f32[2] = jit[name=f jaxpr=f] a in (b,) }';
    expect(() => importGraph(endless, { infer })).toThrow(/jaxpr 'f' calls itself/);
    expect(() => importGraph(endless.replaceAll('jaxpr=f', 'jaxpr=g'), { infer })).toThrow(
      /parameter 'jaxpr' of jit is not a jaxpr/,
    );
  });

  test('select_prim and fft_type that are none are refused with their place', () => {
    const { jaxpr } = record.programs['max-pool-gradient'];
    expect(() => importGraph(jaxpr.replace('select_prim=ge', 'select_prim=lt'), { infer })).toThrow(
      /select_prim of select_and_scatter_add is 'lt', expected ge or le/,
    );
    expect(() =>
      importGraph(record.programs.rfft.jaxpr.replace('fft_type=2', 'fft_type=9'), { infer }),
    ).toThrow(/fft_type is '9'/);
  });

  test('stablehlo.complex says the type of its result; parts of another shape are refused', () => {
    const text = (
      part: string,
    ): string => `func.func public @main(%a: tensor<3xf32>, %b: tensor<${part}>) -> tensor<3xcomplex<f32>> {
  %0 = stablehlo.complex %a, %b : tensor<3xcomplex<f32>>
  return %0 : tensor<3xcomplex<f32>>
}`;
    expect(importGraph(text('3xf32'), { infer }).nodes.at(-1)?.type).toMatchObject({
      dtype: 'c64',
      shape: [3],
    });
    expect(() => importGraph(text('2xf32'), { infer })).toThrow(
      /'%b' is tensor<2xf32>, stablehlo.complex says tensor<3xf32>/,
    );
  });
});

describe('stablehlo.fft', () => {
  test.each(
    record.transforms.map(
      (t) => [`${t.kind} of [${t.x.shape.join(', ')}] over ${t.length.join(' x ')}`, t] as const,
    ),
  )('%s as NumPy', (_, t) => {
    const part = (values: readonly number[]): NDArray => fromList(t.x.shape, values, 'f64');
    const x = t.kind === 'RFFT' ? part(t.x.re) : complexOf(part(t.x.re), part(t.x.im), 'c128');
    const y = evaluateCall(table, 'stablehlo.fft', [x], {
      fft_type: t.kind,
      fft_length: t.length,
    }) as NDArray;
    expect(y.shape).toEqual(t.y.shape);
    const [re, im] = partsOf(y);
    const near = (got: NDArray, want: readonly number[]): void => {
      got.toArray().forEach((v, i) => {
        expect(v).toBeCloseTo(want[i], 12);
      });
    };
    near(re, t.y.re);
    if (t.kind !== 'IRFFT') near(im, t.y.im);
  });
});
