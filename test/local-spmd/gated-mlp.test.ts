import { describe, expect, test } from 'vitest';

import { placeholdersOf } from '../../src/graph/control.ts';
import type { Graph } from '../../src/graph/types.ts';
import { checkTypes } from '../../src/local-spmd/check-types.ts';
import type { DeviceProgram } from '../../src/lower/program/program.ts';
import { eraseTypes } from '../../src/lower/typed/erase.ts';
import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { check } from '../../src/simulate/strip.ts';
import { bucketProgram } from '../../src/simulate/timeline/bucket-program.ts';
import {
  allGather,
  allReduce,
  assertType,
  contract,
  convert,
  outPartial,
} from '../../src/trace/spmd/verbs.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';
import { runErased } from './support/erased.ts';
import { hloOf } from './support/hlo.ts';
import { table, textOf } from './support/simulated.ts';

const MESH = 'dp=2,tp=2';
const R = { src: 'I', dst: 'R' } as const;
const INPUTS = [
  input([4, 8, 16], 'f32'),
  input([16, 32], 'f32'),
  input([16, 32], 'f32'),
  input([32, 16], 'f32'),
] as const;
export const WRT = ['arg0', 'arg1', 'arg2', 'arg3'];

/** x and the three weights of a gated MLP, x cut on dp, weights cut on tp. */
function gated(shared: boolean, mesh = MESH): Graph {
  return trace(
    (x, w1, w2, w3) => {
      const own = assertType(x, 'P(None,"dp")');
      const whole = (): Tensor => convert(own, 'tp', R);
      const once = whole();
      const weight = (w: Tensor, spec: string): Tensor => convert(assertType(w, spec), 'dp', R);
      const h1 = contract('sbh,hi->sbi', once, weight(w1, 'P(None,"tp")'));
      const h3 = contract('sbh,hi->sbi', shared ? once : whole(), weight(w3, 'P(None,"tp")'));
      const h = h1.silu().mul(h3);
      return outPartial(contract('sbi,ih->sbh', h, weight(w2, 'P("tp")')), 'tp');
    },
    [INPUTS[0], INPUTS[1], INPUTS[3], INPUTS[2]],
    { mesh },
  );
}

describe('the gated MLP, strict', () => {
  const forward = gated(true);
  const joint = jointGraph(forward, { wrt: WRT });
  const { texts, violations } = checkTypes(joint);
  const typesOf = (target: string): string[] =>
    joint.nodes.filter((n) => n.target === target).map((n) => texts.get(n.name) ?? '?');

  test('no law is broken, forward and in the gradient', () => {
    expect(violations.map((v) => v.message)).toEqual([]);
  });

  test('h1, h3 and h are cut by dp and tp', () => {
    expect(typesOf('aten.einsum.default').slice(0, 2)).toEqual([
      'f32[4,8@dp,32@tp]',
      'f32[4,8@dp,32@tp]',
    ]);
    expect(typesOf('aten.mul.Tensor')[0]).toBe('f32[4,8@dp,32@tp]');
  });
  test('out is unreduced on tp', () => {
    expect(texts.get(joint.outputs[0].value ?? '')).toBe('f32[4,8@dp,16]{U:tp}');
  });
  test('g_out is reduced, g_h cut', () => {
    expect(texts.get('tangents_1')).toBe('f32[4,8@dp,16]{R:tp}');
    const [made] = joint.nodes.filter(
      ({ target, args }) => target === 'aten.einsum.default' && args[0] === 'sbh,ih->sbi',
    );
    expect(texts.get(made.name)).toBe('f32[4,8@dp,32@tp]');
  });
  const gradient = (of: string): string =>
    joint.outputs.find((o) => o.role === 'grad' && o.of === of)?.value ?? '';
  /** The value before the redistributions that end a gradient. */
  const owed = (of: string): string => {
    const node = joint.nodes.find((n) => n.name === gradient(of));
    const [x] = node?.args ?? [];
    return texts.get((x as { name: string }).name) ?? '?';
  };
  test('g_w2 is unreduced on dp', () => {
    expect(owed('arg2')).toBe('f32[32@tp,16]{U:dp}');
    expect(texts.get(gradient('arg2'))).toBe('f32[32@tp,16]');
  });
  test('gradients of the gate are cut as h', () => {
    const names = joint.nodes.filter(
      (n) => n.meta.phase === 'backward' && /mul|silu_backward/.test(n.target),
    );
    expect(names.length).toBe(4 - 1);
    for (const { name } of names) expect(texts.get(name)).toBe('f32[4,8@dp,32@tp]');
  });
  test('g_w1 and g_w3 are unreduced on dp', () => {
    for (const of of ['arg1', 'arg3']) expect(owed(of)).toBe('f32[16,32@tp]{U:dp}');
  });
  test('the two addends of g_x are added while unreduced', () => {
    expect(owed('arg0')).toBe('f32[4,8@dp,16]{U:tp}');
    const sum = joint.nodes.filter((n) => n.target === 'aten.add.Tensor');
    expect(sum.map((n) => texts.get(n.name))).toEqual(['f32[4,8@dp,16]{U:tp}']);
  });

  const program = (graph: Graph) =>
    eraseTypes({
      graph,
      mesh: parseMesh(MESH),
      table,
      inputs: placeholdersOf(graph).map(() => []),
    });

  test('no collective forward; one AR on dp for each weight and one on tp in the gradient', () => {
    const axes = ['dp', 'tp'];
    expect(runErased(program(forward)).collectives.map((c) => textOf(c, axes))).toEqual([]);
    const made = runErased(program(joint)).collectives.map((c) => textOf(c, axes));
    expect([...made].sort()).toEqual(['AR dp', 'AR dp', 'AR dp', 'AR tp']);
  });

  test('in buckets one all_reduce carries the three weight gradients, over the groups of dp', () => {
    const groups = (of: DeviceProgram): string[] =>
      hloOf(of)
        .map(([kind, groups, shapes]) => `${kind} ${JSON.stringify(groups)} ${shapes.join()}`)
        .sort();
    const [dp, tp] = ['[[0,2],[1,3]]', '[[0,1],[2,3]]'];
    const weights = [
      `all-reduce ${dp} f32[16,16]`,
      `all-reduce ${dp} f32[16,16]`,
      `all-reduce ${dp} f32[16,16]`,
    ];
    expect(groups(program(joint))).toEqual([`all-reduce ${tp} f32[4,4,16]`, ...weights].sort());
    const packed = bucketProgram(program(joint), 25 * 2 ** 20);
    expect(groups(packed)).toEqual(
      [`all-reduce ${tp} f32[4,4,16]`, `all-reduce ${dp} f32[${3 * 16 * 16}]`].sort(),
    );
    for (const error of runErased(packed, joint).compare) expect(error).toBeLessThan(1e-9);
  });

  test('a cast in each branch costs a second AR on tp', () => {
    const apart = jointGraph(gated(false), { wrt: WRT });
    expect(checkTypes(apart).violations).toEqual([]);
    const made = runErased(program(apart)).collectives.map((c) => textOf(c, ['dp', 'tp']));
    expect([...made].sort()).toEqual(['AR dp', 'AR dp', 'AR dp', 'AR tp', 'AR tp']);
    const casts = gated(false)
      .nodes.filter(({ args }) => args[1] === 'tp' && args[4] === 'R')
      .map(({ name }) => name);
    const advised = check(gated(false), { mode: 'strict' }).advice;
    expect(advised).toEqual([
      {
        nodes: casts,
        meshDim: 'tp',
        advice: expect.stringContaining('runs 1 all_reduce in the gradient instead of 2') as string,
      },
    ]);
    expect(check(gated(true), { mode: 'strict' }).advice).toEqual([]);
  });

  test('the erased program gives the outputs and gradients of one device', () => {
    for (const graph of [forward, joint, jointGraph(gated(false), { wrt: WRT })]) {
      const { compare } = runErased(program(graph), graph);
      expect(compare.length).toBeGreaterThan(0);
      for (const error of compare) expect(error).toBeLessThan(1e-9);
    }
  });

  test('an axis of size 1 gives the same program without collectives', () => {
    const single = jointGraph(gated(true, 'dp=1,tp=1'), { wrt: WRT });
    const run = runErased(
      eraseTypes({
        graph: single,
        mesh: parseMesh('dp=1,tp=1'),
        table,
        inputs: placeholdersOf(single).map(() => []),
      }),
      single,
    );
    expect(run.collectives).toEqual([]);
    for (const error of run.compare) expect(error).toBeLessThan(1e-12);
  });

  test('out completed by name is I', () => {
    const graph = trace(
      (x, w) =>
        allReduce(
          outPartial(
            contract('bi,io->bo', assertType(x, 'P(None,"tp")'), assertType(w, 'P("tp")')),
            'tp',
          ),
          'tp',
          { dst: 'I' },
        ),
      [input([4, 8], 'f32'), input([8, 4], 'f32')],
      { mesh: 'tp=2' },
    );
    const typed = checkTypes(graph);
    expect(typed.violations).toEqual([]);
    expect(typed.texts.get(graph.outputs[0].value ?? '')).toBe('f32[4,4]');
  });
});

describe('a dim that two axes cut', () => {
  const gathers = (axes: readonly string[]): Graph =>
    trace(
      (x) =>
        axes.reduce(
          (y, axis) => allGather(y, axis, { src: 'S(0)', dst: 'R' }),
          assertType(x, 'P(("dp","tp"))'),
        ),
      [input([8], 'f32')],
      { mesh: MESH },
    );

  test('only the last axis of a dim is gathered: tp first, then dp', () => {
    const { violations } = checkTypes(gathers(['dp']), { mode: 'strict' });
    expect(violations.map(({ message, fix }) => [message, fix])).toEqual([
      [
        expect.stringMatching(/dp is not the last axis that cuts dim 0: tp/),
        expect.stringContaining('gather tp first'),
      ],
    ]);
    const { violations: none, texts } = checkTypes(gathers(['tp', 'dp']), { mode: 'strict' });
    expect(none).toEqual([]);
    expect([...texts.values()]).toContain('f32[8@dp]{R:tp}');
  });
});
