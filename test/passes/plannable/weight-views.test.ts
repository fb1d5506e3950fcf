import { describe, expect, it } from 'vitest';

import { lintGraph } from '../../../src/graph/lint.ts';
import { eachOperand } from '../../../src/graph/value.ts';
import { inferCall } from '../../../src/ops/record/infer.ts';
import { backwardStart, retakeWeightViews } from '../../../src/passes/plannable/weight-views.ts';
import { load, TABLE } from '../../plan/support.ts';

describe('views of weights are taken again in the backward pass', () => {
  for (const model of [
    'torch/mlp/joint.expanded',
    'torch/llama-tiny/joint.expanded',
    'torch/gpt2-2l/joint.expanded',
    'peers/block-256',
  ]) {
    it(`${model}: no backward call reads a forward view of a parameter`, () => {
      const graph = retakeWeightViews(load(model), TABLE);
      lintGraph(graph, (node, typeOf) => inferCall(TABLE, node, typeOf));
      const split = backwardStart(graph);
      const parameters = new Set(
        graph.nodes.filter((n) => n.meta.role === 'parameter').map((n) => n.name),
      );
      const views = new Set<string>();
      graph.nodes.slice(0, split).forEach((node) => {
        if (node.kind === 'call' && node.target === 'aten.t.default')
          eachOperand(node, (name) => void (parameters.has(name) && views.add(node.name)));
      });
      for (const node of graph.nodes.slice(split))
        eachOperand(node, (name) => expect(views.has(name)).toBe(false));
    });
  }

  it('leaves its own results: a program that is prepared twice keeps its names', () => {
    for (const model of [
      'torch/mlp/joint.readable',
      'torch/llama-tiny/joint.expanded',
      'joint/resnet18/joint',
    ]) {
      const once = retakeWeightViews(load(model), TABLE);
      expect(retakeWeightViews(once, TABLE).nodes.map((n) => n.name)).toEqual(
        once.nodes.map((n) => n.name),
      );
    }
  });

  it('keeps what the program computes: the same targets, the same outputs', () => {
    const before = load('torch/mlp/joint.expanded');
    const after = retakeWeightViews(before, TABLE);
    expect(after.outputs).toEqual(before.outputs);
    const count = (g: typeof before, target: string): number =>
      g.nodes.filter((n) => n.target === target).length;
    for (const target of ['aten.mm.default', 'aten.addmm.default', 'aten.relu.default'])
      expect(count(after, target)).toBe(count(before, target));
    expect(after.notes?.some((n) => n.includes('taken again'))).toBe(true);
  });

  it('counts the views in words', () => {
    // A two-layer MLP reads one transposed weight going back: that of its second layer.
    for (const model of ['torch/mlp/joint.expanded', 'torch/llama-tiny/joint.expanded']) {
      const before = load(model);
      const after = retakeWeightViews(before, TABLE);
      const again = after.nodes.filter((n) => /_recomputed(_\d+)?$/.test(n.name)).length;
      const words = again === 1 ? 'One view of a parameter is' : `${again} views of parameters are`;
      expect(after.notes?.at(-1)).toMatch(new RegExp(`^${words} taken again`));
      expect(again === 1, model).toBe(model === 'torch/mlp/joint.expanded');
    }
  });

  it('returns a forward graph as it is', () => {
    const graph = load('torch/llama-tiny/export.readable');
    expect(retakeWeightViews(graph, TABLE)).toBe(graph);
  });
});
