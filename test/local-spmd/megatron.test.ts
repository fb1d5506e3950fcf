import { describe, expect, test } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { checkTypes } from '../../src/local-spmd/check-types.ts';
import { erase, why } from '../../src/lower/typed/erased.ts';
import { flat, fromFlat, type NDArray } from '../../src/ndarray/array.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';
import { check } from '../../src/simulate/strip.ts';
import { localMap, type LocalMapOptions } from '../../src/trace/spmd/local-map.ts';
import * as megatron from '../../src/trace/spmd/megatron.ts';
import {
  allGather,
  allReduce,
  assertType,
  axisIndex,
  contract,
  convert,
  outPartial,
} from '../../src/trace/spmd/verbs.ts';
import { crossEntropy } from '../../src/trace/tensor/functional.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';
import { runErased } from './support/erased.ts';
import { hloOf, regionsOf } from './support/hlo.ts';
import { collectivesOf, drawn, expectSame, table, textOf } from './support/simulated.ts';

const X = input([8, 8], 'f64');
type Specs = Pick<LocalMapOptions, 'inSpecs' | 'outSpecs'>;
const I = { tp: 'I' } as const;
const P = { tp: 'P' } as const;
const R = { tp: 'R' } as const;
const S0 = 'P("tp")';
const S1 = 'P(None,"tp")';

/** Forward collectives, gradient collectives of one function in a region. */
function both(fn: (x: Tensor) => Tensor, specs: Specs): [string, string] {
  const graph = trace(
    (x) => localMap((x: Tensor) => fn(x), { ...specs, autoCast: false })(x),
    [X],
    { mesh: 'tp=2' },
  );
  const [forward, backward] = collectivesOf(jointGraph(graph, { wrt: ['arg0'] }));
  return [forward.join(), backward.join()];
}

describe('the functions of Megatron', () => {
  test.each([
    [
      'copyTo',
      megatron.copyToTensorModelParallelRegion,
      { inSpecs: [I], outSpecs: R },
      '',
      'AR tp',
    ],
    [
      'reduceFrom',
      megatron.reduceFromTensorModelParallelRegion,
      { inSpecs: [P], outSpecs: I },
      'AR tp',
      '',
    ],
    [
      'scatterTo',
      megatron.scatterToTensorModelParallelRegion,
      { inSpecs: [I], outSpecs: S1 },
      '',
      'AG tp',
    ],
    [
      'gatherFrom',
      megatron.gatherFromTensorModelParallelRegion,
      { inSpecs: [S1], outSpecs: I },
      'AG tp',
      '',
    ],
    [
      'scatterToSequence',
      megatron.scatterToSequenceParallelRegion,
      { inSpecs: [I], outSpecs: S0 },
      '',
      'AG tp',
    ],
    [
      'gatherFromSequence',
      (x: Tensor) => megatron.gatherFromSequenceParallelRegion(x),
      { inSpecs: [S0], outSpecs: R },
      'AG tp',
      'RS tp',
    ],
    [
      'gatherFromSequence, duplicated',
      (x: Tensor) =>
        megatron.gatherFromSequenceParallelRegion(x, 'tp', { tensorParallelOutputGrad: false }),
      { inSpecs: [S0], outSpecs: I },
      'AG tp',
      '',
    ],
    [
      'reduceScatterToSequence',
      megatron.reduceScatterToSequenceParallelRegion,
      { inSpecs: [P], outSpecs: S0 },
      'RS tp',
      'AG tp',
    ],
    [
      'allGatherLastDim',
      megatron.allGatherLastDimFromTensorParallelRegion,
      { inSpecs: [S1], outSpecs: R },
      'AG tp',
      'RS tp',
    ],
    [
      'reduceScatterLastDim',
      megatron.reduceScatterLastDimToTensorParallelRegion,
      { inSpecs: [P], outSpecs: S1 },
      'RS tp',
      'AG tp',
    ],
  ] as [string, (x: Tensor) => Tensor, Specs, string, string][])(
    '%s and its gradient',
    (_name, fn, specs, forward, backward) => {
      expect(both((x) => fn(x), specs)).toEqual([forward, backward]);
    },
  );

  const W = [X, input([8, 16], 'f64'), input([16, 8], 'f64')] as const;
  const WRT = ['arg0', 'arg1', 'arg2'];
  const block = (
    x: Tensor,
    w1: Tensor,
    w2: Tensor,
    f: (x: Tensor) => Tensor,
    g: (x: Tensor) => Tensor,
  ): Tensor => x.add(g(contract('bo,oi->bi', contract('bi,io->bo', f(x), w1).silu(), w2)));
  const whole = trace(
    (x, w1, w2) =>
      block(
        block(
          x,
          w1,
          w2,
          (a) => a,
          (a) => a,
        ),
        w1,
        w2,
        (a) => a,
        (a) => a,
      ),
    W,
  );
  const halves = (sp: boolean) =>
    trace(
      (x, w1, w2) =>
        localMap(
          (x: Tensor, w1: Tensor, w2: Tensor) => {
            const f = sp
              ? (a: Tensor) => megatron.gatherFromSequenceParallelRegion(a)
              : (a: Tensor) => megatron.copyToTensorModelParallelRegion(a);
            const g = (a: Tensor): Tensor =>
              sp
                ? megatron.reduceScatterToSequenceParallelRegion(outPartial(a, 'tp'))
                : megatron.reduceFromTensorModelParallelRegion(outPartial(a, 'tp'));
            return block(block(x, w1, w2, f, g), w1, w2, f, g);
          },
          { inSpecs: [sp ? S0 : I, S1, S0], outSpecs: sp ? S0 : I, autoCast: false },
        )(x, w1, w2),
      W,
      { mesh: 'tp=4' },
    );

  test('one block of two halves: 2 + 2 AR, or 2 AG + 2 RS each way, and the numbers of one device', () => {
    const reference = jointGraph(whole, { wrt: WRT });
    const tp = jointGraph(halves(false), { wrt: WRT });
    const sp = jointGraph(halves(true), { wrt: WRT });
    expect(collectivesOf(tp)).toEqual([
      ['AR tp', 'AR tp'],
      ['AR tp', 'AR tp'],
    ]);
    expect(collectivesOf(sp).map((list) => [...list].sort())).toEqual([
      ['AG tp', 'AG tp', 'RS tp', 'RS tp'],
      ['AG tp', 'AG tp', 'RS tp', 'RS tp'],
    ]);
    expectSame(tp, reference);
    expectSame(sp, reference);
  });

  test('a sum that ends R instead of I costs one more reduction in the gradient', () => {
    const ends = (dst: 'I' | 'R') =>
      both(
        (x) =>
          allReduce(
            outPartial(convert(x, 'tp', { src: 'I', dst: 'R' }).mul(axisIndex('tp')), 'tp'),
            'tp',
            { dst },
          ),
        { inSpecs: [I], outSpecs: { tp: dst } },
      );
    expect(ends('I')).toEqual(['AR tp', 'AR tp']);
    expect(ends('R')).toEqual(['AR tp', 'AR tp,AR tp']);
  });

  describe('the loss over a cut vocabulary', () => {
    const logits = input([6, 12], 'f64');
    const targets = input([6], 'i64');
    const loss = (fn: (z: Tensor, t: Tensor) => Tensor): Graph =>
      trace(
        (z, t) =>
          localMap((z: Tensor, t: Tensor) => fn(z, t), {
            inSpecs: [S1, I],
            outSpecs: I,
            autoCast: false,
          })(z, t),
        [logits, targets],
        { mesh: 'tp=4' },
      );
    const cut = loss((z, t) => megatron.vocabParallelCrossEntropy(z, t));
    const gathered = loss((z, t) =>
      crossEntropy(megatron.gatherFromTensorModelParallelRegion(z), t, { reduction: 'none' }),
    );
    const plain = trace((z, t) => crossEntropy(z, t, { reduction: 'none' }), [logits, targets]);

    test('has the value, the type and the gradient of gathering first, and of one device', () => {
      const numbers = [
        drawn([6, 12], 1),
        fromFlat([6], Float64Array.from([0, 3, 11, 5, 6, 2]), 'i64'),
        drawn([6], 4),
      ];
      const run = (graph: Graph): number[][] =>
        evaluateGraph(table, jointGraph(graph, { wrt: ['arg0'] }), numbers).outputs.flatMap(
          (out) => (out === null ? [] : [[...flat(out as NDArray)]]),
        );
      const [ours, whole, one] = [cut, gathered, plain].map(run);
      expect(one[0].every((value) => value > 0)).toBe(true);
      for (const found of [ours, whole])
        found.forEach((list, k) =>
          list.forEach((value, i) => expect(Math.abs(value - one[k][i])).toBeLessThan(1e-12)),
        );
      const [text, same] = [cut, gathered].map((graph) =>
        checkTypes(graph).texts.get(
          `local_map_0/${graph.subgraphs['local_map_0'].outputs[0].value}`,
        ),
      );
      expect(text).toBe('f64[6]');
      expect(text).toBe(same);
    });

    test('reduces numbers of rows, and nothing in the gradient', () => {
      const [forward, backward] = regionsOf(jointGraph(cut, { wrt: ['arg0'] })).map(hloOf);
      expect(forward.map(([kind, , shape]) => [kind, shape])).toEqual([
        ['all-gather', ['f32[4,6]']],
        ['all-reduce', ['f32[6]']],
        ['all-reduce', ['f32[6]']],
      ]);
      expect(backward).toEqual([]);
    });
  });

  test('the loss of data, tensor and context parallelism', () => {
    const graph = trace(
      (x, w1, w2) => {
        const rows = assertType(x, 'P("dp","cp")');
        const weight = (w: Tensor, spec: string): Tensor =>
          ['dp', 'cp'].reduce(
            (now, axis) => convert(now, axis, { src: 'I', dst: 'R' }),
            assertType(w, spec),
          );
        const h = contract(
          'bsi,io->bso',
          convert(rows, 'tp', { src: 'I', dst: 'R' }),
          weight(w1, 'P(None,"tp")'),
        ).silu();
        const y = allReduce(
          outPartial(contract('bso,oi->bsi', h, weight(w2, 'P("tp")')), 'tp'),
          'tp',
          { dst: 'I' },
        );
        return outPartial(y.mul(y).sum(), ['dp', 'cp']);
      },
      [input([4, 4, 8], 'f32'), input([8, 16], 'f32'), input([16, 8], 'f32')],
      { mesh: 'dp=2,cp=2,tp=2' },
    );
    const joint = jointGraph(graph, { wrt: WRT });
    const { violations } = check(joint, { mode: 'strict' });
    expect(violations.map((v) => v.message)).toEqual([]);
    const loss = why(joint, 'out_partial_2').at(0);
    expect(loss?.type).toBe('f32[]{U:(dp,cp)}');
    const program = erase(joint);
    const run = runErased(program, joint);
    for (const error of run.compare) expect(error).toBeLessThan(1e-9);
    const made = run.collectives.map((c) => textOf(c, ['dp', 'cp', 'tp'])).sort();
    expect(made).toEqual(['AR cp', 'AR cp', 'AR dp', 'AR dp', 'AR tp', 'AR tp']);
    // The gradient of the loss is 1, whole where the loss is addends; those of parameters end as
    // the parameters are held.
    const { texts } = checkTypes(joint);
    expect(texts.get('tangents_1')).toBe('f32[]{R:(dp,cp)}');
    const ends = joint.outputs.flatMap(({ role, of, value }) =>
      role === 'grad' ? [[of, texts.get(value ?? '')]] : [],
    );
    expect(ends).toEqual([
      ['arg0', 'f32[4@dp,4@cp,8]'],
      ['arg1', 'f32[8,16@tp]'],
      ['arg2', 'f32[16@tp,8]'],
    ]);
  });

  test('gradients of parameters in pieces end in pieces, by a reduce_scatter each', () => {
    const graph = trace(
      (x, w) => {
        const whole = allGather(assertType(w, 'P("dp")'), 'dp', { src: 'S(0)', dst: 'R' });
        const y = contract('bi,io->bo', assertType(x, 'P("dp")'), whole);
        return outPartial(y.mul(y).sum(), 'dp');
      },
      [X, input([8, 16], 'f32')],
      { mesh: 'dp=4' },
    );
    const joint = jointGraph(graph, { wrt: ['arg1'] });
    const { texts, violations } = checkTypes(joint);
    expect(violations).toEqual([]);
    const [grad] = joint.outputs.filter(({ role, of }) => role === 'grad' && of === 'arg1');
    expect(texts.get(grad.value ?? '')).toBe('f32[8@dp,16]');
    expect(runErased(erase(joint)).collectives.map((c) => textOf(c, ['dp']))).toEqual([
      'AG dp',
      'RS dp',
    ]);
  });

  test('why names the chain from a collective to what made it necessary', () => {
    const graph = trace(
      (x, w) => {
        const own = contract(
          'bi,io->bo',
          assertType(x, 'P("dp")'),
          convert(assertType(w, {}), 'dp', { src: 'I', dst: 'R' }),
        );
        return own.silu();
      },
      [X, input([8, 8], 'f64')],
      { mesh: 'dp=2' },
    );
    const joint = jointGraph(graph, { wrt: ['arg1'] });
    const [reduce] = joint.nodes.filter(
      (n) => n.target.includes('redistribute') && n.meta.phase === 'backward',
    );
    const causes = why(joint, reduce.name);
    expect(causes[0].because).toBe('P→I on dp, the gradient of %redistribute');
    expect(causes.at(-1)?.because).toMatch(
      /^makes P of %assert_type: f64\[8@dp,8\], %silu_backward: f64\[8@dp,8\]$/,
    );
  });
});
