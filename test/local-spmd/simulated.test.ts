import { describe, expect, test } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { psum, pvary } from '../../src/trace/spmd/jax-names.ts';
import { localMap } from '../../src/trace/spmd/local-map.ts';
import {
  allGather,
  allReduce,
  convert,
  outPartial,
  reduceScatter,
} from '../../src/trace/spmd/verbs.ts';
import { einsum } from '../../src/trace/tensor/einsum.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';
import { collectivesOf, expectSame } from './support/simulated.ts';

/** One block of Megatron: x, a column-parallel and a row-parallel weight, with a residual. */
const block = (
  x: Tensor,
  w1: Tensor,
  w2: Tensor,
  f: (x: Tensor) => Tensor,
  g: (y: Tensor) => Tensor,
): Tensor => g(einsum('bo,oi->bi', einsum('bi,io->bo', f(x), w1).silu(), w2));

const X = input([8, 8], 'f64');
const W1 = input([8, 16], 'f64');
const W2 = input([16, 8], 'f64');
const WRT = ['arg0', 'arg1', 'arg2'];
const INPUTS = [X, W1, W2] as const;

const whole = (): Graph =>
  trace(
    (x, w1, w2) =>
      block(
        x,
        w1,
        w2,
        (a) => a,
        (a) => a,
      ),
    INPUTS,
  );

const tp = (mesh: string): Graph =>
  trace(
    (x, w1, w2) =>
      localMap(
        (x: Tensor, w1: Tensor, w2: Tensor) =>
          block(
            x,
            w1,
            w2,
            (a) => convert(a, 'tp', { src: 'I', dst: 'R' }),
            (a) => allReduce(outPartial(a, 'tp'), 'tp', { dst: 'I' }),
          ),
        { inSpecs: ['P(None)', 'P(None,"tp")', 'P("tp")'], outSpecs: { tp: 'I' }, autoCast: false },
      )(x, w1, w2),
    INPUTS,
    { mesh },
  );

const sp = (mesh: string): Graph =>
  trace(
    (x, w1, w2) =>
      localMap(
        (x: Tensor, w1: Tensor, w2: Tensor) =>
          block(
            x,
            w1,
            w2,
            (a) => allGather(a, 'tp', { src: 'S(0)', dst: 'R' }),
            (a) => reduceScatter(outPartial(a, 'tp'), 'tp', { dst: 'S(0)' }),
          ),
        { inSpecs: ['P("tp")', 'P(None,"tp")', 'P("tp")'], outSpecs: 'P("tp")', autoCast: false },
      )(x, w1, w2),
    INPUTS,
    { mesh },
  );

describe('regions run on virtual devices', () => {
  test.each(['tp=1', 'tp=2', 'tp=4'])(
    'a block on %s is the whole one, forward and gradient',
    (mesh) => {
      const reference = jointGraph(whole(), { wrt: WRT });
      expectSame(jointGraph(tp(mesh), { wrt: WRT }), reference);
      expectSame(jointGraph(sp(mesh), { wrt: WRT }), reference);
    },
  );

  test('half a block runs one AR forward and one in the gradient; with sequence parallelism AG and RS', () => {
    expect(collectivesOf(jointGraph(tp('tp=2'), { wrt: WRT }))).toEqual([['AR tp'], ['AR tp']]);
    const [forward, backward] = collectivesOf(jointGraph(sp('tp=2'), { wrt: WRT }));
    expect(forward).toEqual(['AG tp', 'RS tp']);
    expect([...backward].sort()).toEqual(['AG tp', 'RS tp']);
  });

  const mlp = (cutRows: boolean): Graph =>
    trace(
      (x, w1, w2) =>
        localMap(
          (x: Tensor, w1: Tensor, w2: Tensor) => {
            const own = cutRows ? [pvary(w1, 'dp'), pvary(w2, 'dp')] : [w1, w2];
            const h = einsum('bi,io->bo', pvary(x, 'tp'), own[0]).relu();
            const y = psum(einsum('bo,oi->bi', h, own[1]), 'tp');
            return y;
          },
          {
            inSpecs: [cutRows ? 'P("dp")' : 'P(None)', 'P(None,"tp")', 'P("tp")'],
            outSpecs: cutRows ? 'P("dp")' : 'P(None)',
          },
        )(x, w1, w2).sum(),
      [input([cutRows ? 8 : 4, 16], 'f64'), input([16, 32], 'f64'), input([32, 16], 'f64')],
      { mesh: 'dp=2,tp=2' },
    );

  test('the gradient of all runs one AR on tp, that of the weights none', () => {
    expect(collectivesOf(mlp(false))).toEqual([['AR tp']]);
    expect(collectivesOf(jointGraph(mlp(false), { wrt: WRT, seed: 1 }))).toEqual([
      ['AR tp'],
      ['AR tp'],
    ]);
    expect(collectivesOf(jointGraph(mlp(false), { wrt: ['arg1', 'arg2'], seed: 1 }))).toEqual([
      ['AR tp'],
      [],
    ]);
  });

  test('rows cut on dp add one AR on dp for each weight', () => {
    expect(collectivesOf(mlp(true))).toEqual([['AR tp']]);
    const all = collectivesOf(jointGraph(mlp(true), { wrt: WRT, seed: 1 }))[1];
    expect([...all].sort()).toEqual(['AR dp', 'AR dp', 'AR tp']);
    const weights = collectivesOf(jointGraph(mlp(true), { wrt: ['arg1', 'arg2'], seed: 1 }))[1];
    expect(weights).toEqual(['AR dp', 'AR dp']);
  });
});
