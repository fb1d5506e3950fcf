import { describe, expect, it } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { parseGraph } from '../../../src/graph/text/parse.ts';
import { printGraph } from '../../../src/graph/text/write.ts';
import type { Graph } from '../../../src/graph/types.ts';
import { importGraph } from '../../../src/import/import.ts';
import { programFlops } from '../../../src/ops/program-flops.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { savedValues } from '../../../src/passes/autodiff/saved.ts';
import { recomputedBy } from '../../../src/passes/checkpoint/policies.ts';
import { plannable } from '../../../src/passes/plannable/plannable.ts';
import { checkpoint } from '../../../src/trace/control/checkpoint.ts';
import { scan } from '../../../src/trace/control/loops.ts';
import { spec } from '../../../src/trace/record/spec.ts';
import { recompute, save } from '../../../src/trace/tensor/retain.ts';
import { param } from '../../../src/trace/tensor/state.ts';
import { type Tensor, trace } from '../../../src/trace/trace.ts';
import { errorOf } from '../../trace/support.ts';
import {
  expectClose,
  gradients,
  numbers,
  placeholders,
  table,
  type Values,
} from '../control-support.ts';

/**
 * Specification 10, saves: user tags save and recompute win over checkpoint regions and over
 * policies.
 */

type Tag = (t: Tensor) => Tensor;
const asIs: Tag = (t) => t;
const weight = (name: string): Tensor => param(name, { shape: [3, 3], dtype: 'f64' });

/** Two products with sin and exp between, as a region or plain; `tag` is put on one value. */
const traced = (region: boolean, at: 'mm' | 'sin' | 'exp', tag: Tag): Graph =>
  trace(
    ({ x }) => {
      const on = (name: string, t: Tensor): Tensor => (name === at ? tag(t) : t);
      const body = (a: Tensor): Tensor =>
        on('exp', on('sin', on('mm', a.matmul(weight('w'))).sin()).exp()).matmul(weight('v'));
      return (region ? checkpoint(body, x) : body(x)).sum();
    },
    { x: spec([3, 3], 'f64') },
  );

const saved = (graph: Graph): string[] =>
  savedValues(jointGraph(graph, { seed: 1 })).flatMap((v) => (v.placeholder ? [] : [v.name]));

const VALUES: Values = { w: numbers(9, 1), v: numbers(9, 2), x: numbers(9, 3) };
const PLAIN = traced(false, 'mm', asIs);

function expectSameGradients(graph: Graph): void {
  const [a, b] = [PLAIN, graph].map((g) => gradients(g, VALUES, ['w', 'v']));
  for (const name of ['w', 'v']) expectClose(b[name] ?? [], a[name] ?? [NaN], 1e-12, name);
}

describe('save and recompute', () => {
  it('save keeps a value of a checkpoint region: 72 bytes cross, and its product is not recomputed', () => {
    const [plain, kept] = [traced(true, 'mm', asIs), traced(true, 'mm', save)];
    const [a, b] = [plain, kept].map((graph) => jointGraph(graph, { seed: 1 }));
    const bytes = (joint: Graph): number =>
      savedValues(joint).reduce((n, v) => n + (v.placeholder ? 0 : (v.bytes ?? NaN)), 0);
    expect([bytes(a), bytes(b)]).toEqual([0, 9 * 8]);
    // One product of 3 x 3 x 3.
    expect(programFlops(a, table).backward - programFlops(b, table).backward).toBe(2 * 27);
    expect(programFlops(b, table).forward).toBe(programFlops(a, table).forward);
    expectSameGradients(kept);
    // Written out for planning too.
    const flat = plannable(b, table);
    const products = flat.nodes.filter(
      (n) => n.target === 'aten.mm.default' && n.meta.phase === 'backward',
    );
    expect(products).toHaveLength(3);
  });

  it('a result of the region that is tagged is read where it is', () => {
    const graph = trace(
      ({ x }) => {
        const y = checkpoint((a: Tensor) => save(a.matmul(weight('w')).exp()), x);
        return y.mul(y).sum();
      },
      { x: spec([3, 3], 'f64') },
    );
    const joint = jointGraph(graph, { seed: 1 });
    const body = joint.subgraphs['checkpoint_backward'];
    expect(body.nodes.map((node) => node.target)).not.toContain('aten.exp.default');
    expect(saved(graph)).toEqual(['getitem']);
  });

  it('recompute leaves a value out of what is kept; the recomputed node is backward work and names the first', () => {
    expect(saved(PLAIN)).toContain('exp');
    const graph = traced(false, 'exp', recompute);
    const joint = jointGraph(graph, { seed: 1 });
    expect(saved(graph)).not.toContain('exp');
    expect(saved(graph)).toContain('sin');
    expect(joint.nodes.find((n) => n.name === 'exp_recomputed')?.meta).toMatchObject({
      phase: 'backward',
      of: 'exp',
    });
    expectSameGradients(graph);
    // A chain of tags is recomputed from its start.
    const both = trace(
      ({ x }) =>
        recompute(recompute(x.matmul(weight('w')).sin()).exp())
          .matmul(weight('v'))
          .sum(),
      { x: spec([3, 3], 'f64') },
    );
    expect(saved(both).filter((name) => !/^t(_\d)?$/.test(name))).toEqual(['mm', 'cos']);
    expectSameGradients(both);
  });

  it('tags stand in the graph text', () => {
    for (const joint of [
      traced(false, 'exp', recompute),
      jointGraph(traced(true, 'mm', save), { seed: 1 }),
    ]) {
      const text = printGraph(joint);
      expect(text).toMatch(/ forward save=(save|recompute)/);
      expect(printGraph(parseGraph(text))).toBe(text);
    }
    expect(
      errorOf(() =>
        parseGraph(printGraph(traced(false, 'exp', save)).replace('save=save', 'save=maybe')),
      ).code,
    ).toBe('E_GRAPH_PARSE');
  });

  it('save wins over the policies of planning', () => {
    const joint = jointGraph(traced(false, 'exp', save), { seed: 1 });
    const plain = jointGraph(PLAIN, { seed: 1 });
    const cluster = loadCluster('dgx-h100');
    // `selective` keeps it of itself: a matmul of the backward pass reads it.
    expect(recomputedBy('selective', plain, table, cluster).has('exp')).toBe(false);
    for (const policy of [0.5, 0] as const) {
      expect(recomputedBy(policy, plain, table, cluster).has('exp'), String(policy)).toBe(true);
      expect(recomputedBy(policy, joint, table, cluster).has('exp'), String(policy)).toBe(false);
    }
  });

  it('refuses what has no meaning', () => {
    const code = (fn: (x: Tensor) => Tensor): string =>
      errorOf(() =>
        jointGraph(
          trace(({ x }) => fn(x).sum(), { x: spec([3, 3], 'f64') }),
          { wrt: 'all', seed: 1 },
        ),
      ).code;
    expect(code((x) => save(x))).toBe('E_TRACE_INPUT');
    expect(code((x) => scan((c, row) => [save(c.add(row)), c], x.select(0, 0), x)[0])).toBe(
      'E_TRACE_INPUT',
    );
    // A graph from elsewhere may draw without a key; a recomputed node would draw other numbers.
    const drawn = printGraph(
      trace(({ x }) => recompute(x.mul(2).exp()).mul(x).sum(), { x: spec([3], 'f64') }),
    );
    const keyless = parseGraph(drawn.replaceAll('aten.exp.default', 'aten.rand_like.default'));
    expect(errorOf(() => jointGraph(keyless, { wrt: 'all', seed: 1 })).code).toBe('E_NO_VJP');
    expect(errorOf(() => save({} as Tensor)).code).toBe('E_TRACE_LEAK');
  });

  it('the tags of a joint graph of PyTorch are kept', () => {
    const text = `class joint_helper(torch.nn.Module):
    def forward(self, x: "f32[2, 3]"):
        # recompute: MUST_SAVE File: net.py:3 in forward, code: y = x.sin()
        sin: "f32[2, 3]" = torch.ops.aten.sin.default(x);  x = None
        # ac_graph_id: 1 - PREFER_RECOMPUTE File: net.py:4 in forward, code: y = y.exp()
        exp: "f32[2, 3]" = torch.ops.aten.exp.default(sin);  sin = None
        # File: net.py:5 in forward, code: y = y.cos()
        cos: "f32[2, 3]" = torch.ops.aten.cos.default(exp);  exp = None
        # recompute: MUST_RECOMPUTE No stacktrace found for following nodes
        neg: "f32[2, 3]" = torch.ops.aten.neg.default(cos);  cos = None
        return (neg,)
`;
    const calls = importGraph(text).nodes.filter((node) => node.kind === 'call');
    expect(calls.map(({ meta }) => [meta.save, meta.source])).toEqual([
      ['save', 'net.py:3'],
      ['recompute', 'net.py:4'],
      [undefined, 'net.py:5'],
      ['recompute', undefined],
    ]);
    expect(placeholders(importGraph(text))).toHaveLength(1);
  });
});
