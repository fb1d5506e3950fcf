import { afterAll, describe, expect, test } from 'vitest';

import { computePhases } from '../../../src/graph/phases.ts';
import type { Graph } from '../../../src/graph/types.ts';
import { flat, type NDArray } from '../../../src/ndarray/array.ts';
import { graphFlops } from '../../../src/ops/flops.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { forwardPart } from '../../../src/passes/dead-code.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { drawnInputs } from '../../simulate/graph-inputs.ts';
import { FULL } from '../../support/full.ts';
import { graphOf, signature, table, targets, withGradient } from '../joint-support.ts';

/**
 * PyTorch's joint graph is the truth: its forward part, differentiated by us, must give it back.
 */
const MODELS = [
  'mlp',
  'mlp-loss',
  'convnet',
  'resnet18',
  'vit-tiny',
  'bert-base',
  'gpt2-2l',
  'llama-tiny',
  'llama3-8b-2l',
  'mixtral-tiny',
  'mixtral-tiny-grouped',
  // Those of 2 layers for longer.
  ...(FULL ? ['gpt2-12l', 'llama3-8b-32l'] : []),
];

/** PyTorch's joint graph of a model, and ours of its forward part; several tests read them. */
interface Pair {
  readonly theirs: Graph;
  readonly ours: Graph;
}
const pairs = new Map<string, Pair>();
function pairOf(model: string): Pair {
  const known = pairs.get(model);
  if (known !== undefined) return known;
  const theirs = graphOf(model, 'joint');
  const ours = jointGraph(forwardPart(theirs), { table, wrt: withGradient(theirs) });
  pairs.set(model, { theirs, ours });
  return { theirs, ours };
}
afterAll(() => pairs.clear());

/**
 * Copies and views of odd layouts, and the `detach` that marks a saved value: they compute nothing.
 */
function computing(counts: Record<string, number>): Record<string, number> {
  const moves = /^aten\.(detach|clone|view|_unsafe_view)\.default$/;
  return Object.fromEntries(Object.entries(counts).filter(([target]) => !moves.test(target)));
}

describe('the joint graph of the forward part of a PyTorch joint graph', () => {
  test.each(MODELS)('%s: PyTorch uses the same operators as often, for the same work', (model) => {
    const { theirs, ours } = pairOf(model);
    expect(computing(targets(ours))).toEqual(computing(targets(theirs)));
    expect(graphFlops(ours, table)).toEqual(graphFlops(theirs, table));
    expect(withGradient(ours)).toEqual(withGradient(theirs));
  });

  test.each([
    'mlp',
    'mlp-loss',
    'llama-tiny',
    'llama3-8b-2l',
    'vit-tiny',
    'bert-base',
    'convnet',
    'resnet18',
  ])('%s: but for detach, every view and copy is the same too', (model) => {
    const { theirs, ours } = pairOf(model);
    const { 'aten.detach.default': _, ...counts } = targets(theirs);
    expect(targets(ours)).toEqual(counts);
  });

  test.each(['mlp', 'llama-tiny', 'vit-tiny'])(
    '%s: inputs, outputs and slots are those of PyTorch',
    (model) => {
      const { theirs, ours } = pairOf(model);
      const sorted = {
        ...theirs,
        nodes: [...theirs.nodes].sort((a, b) => order(a.meta.role) - order(b.meta.role)),
      };
      const sameSlots = (graph: typeof ours) => ({
        ...graph,
        outputs: [...graph.outputs].sort((a, b) => slot(a).localeCompare(slot(b))),
      });
      expect(signature(sameSlots(ours))).toEqual(signature(sameSlots(sorted)));
    },
  );

  // Of a mixture, with routed rows, with SHARDWRIGHT_FULL.
  test.each(['llama-tiny', 'convnet', ...(FULL ? ['mixtral-tiny'] : [])])(
    '%s: every gradient has the same numbers',
    (model) => {
      const { theirs, ours } = pairOf(model);
      const names = theirs.nodes.filter((n) => n.kind === 'placeholder').map((n) => n.name);
      const values = new Map(drawnInputs(theirs).map((x, i) => [names[i], x]));
      const expected = evaluateGraph(table, theirs, [...values.values()]).outputs;
      const inputs = ours.nodes
        .filter((n) => n.kind === 'placeholder')
        .map((n) => values.get(n.name) as NDArray);
      const got = evaluateGraph(table, ours, inputs).outputs;
      let compared = 0;
      theirs.outputs.forEach((output, i) => {
        if (output.role !== 'grad' || output.value === null) return;
        const at = ours.outputs.findIndex((o) => o.role === 'grad' && o.of === output.of);
        const [a, b] = [flat(got[at] as NDArray), flat(expected[i] as NDArray)];
        const scale = Math.sqrt(b.reduce((sum, v) => sum + v * v, 0) / b.length);
        const worst = a.reduce((most, v, k) => Math.max(most, Math.abs(v - b[k])), 0);
        expect(worst).toBeLessThanOrEqual(1e-9 * scale + 1e-12);
        compared++;
      });
      expect(compared).toBe(withGradient(theirs).length);
    },
  );

  test.each(['mlp', 'llama-tiny'])(
    '%s: a call is backward if it depends on a tangent, and names a forward node',
    (model) => {
      const { ours } = pairOf(model);
      const { backward, savedOnly } = computePhases(ours);
      const forward = new Set(
        ours.nodes.filter((n) => n.meta.phase === 'forward').map((n) => n.name),
      );
      ours.nodes.forEach((node, i) => {
        if (node.kind !== 'call') return;
        expect([node.meta.phase, node.meta.savedOnly === true]).toEqual([
          backward[i] === 1 ? 'backward' : 'forward',
          savedOnly[i] === 1,
        ]);
        expect(node.meta.of === undefined || forward.has(node.meta.of)).toBe(true);
        if (node.meta.phase === 'backward') expect(node.meta.of).toBeDefined();
      });
    },
  );
});

describe('the joint graph of an exported program', () => {
  /** Forward work differs where a body of the export holds a product, which is not counted. */
  test.each([
    ['mlp', 1_048_576],
    ['convnet', 1_624_576],
    ['resnet18', 112_324_247_552],
    ['vit-tiny', 82_172_190_720],
    ['bert-base', 916_803_551_232],
    ['gpt2-2l', 1_857_464_303_616],
    ['llama-tiny', 29_884_416],
    ['mixtral-tiny', 36_306_944],
    ['llama3-8b-2l', 68_513_318_305_792],
  ])('%s: the backward work is that of PyTorch', (model, backward) => {
    const ours = jointGraph(graphOf(model, 'export'), { table });
    const { theirs } = pairOf(model);
    expect(graphFlops(ours, table).backward).toBe(backward);
    expect(graphFlops(theirs, table).backward).toBe(backward);
    const products = (counts: Record<string, number>): number =>
      ['mm', 'addmm'].reduce((n, name) => n + (counts[`aten.${name}.default`] ?? 0), 0);
    expect(products(targets(ours))).toBe(products(targets(theirs)));
    expect(withGradient(ours).length).toBe(withGradient(theirs).length);
  });

  test('resnet18: the running statistics are returned as mutations of their buffers', () => {
    const ours = jointGraph(graphOf('resnet18', 'export'), { table });
    const mutated = ours.outputs
      .filter((output) => output.role === 'mutation')
      .map((output) => output.of);
    expect(mutated.length).toBe(60);
    expect(mutated).toContain('b_m_bn1_running_mean');
    expect(mutated).toContain('b_m_bn1_num_batches_tracked');
  });
});

function order(role: string | undefined): number {
  return role === 'parameter' ? 0 : role === 'buffer' ? 1 : role === 'tangent' ? 3 : 2;
}

function slot(output: {
  readonly role: string;
  readonly of?: string;
  readonly index?: number;
}): string {
  return `${output.role} ${output.of ?? output.index ?? ''}`;
}
