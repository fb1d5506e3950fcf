import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { lintGraph } from '../../../src/graph/lint.ts';
import type { Graph } from '../../../src/graph/types.ts';
import { eachOperand } from '../../../src/graph/value.ts';
import { parseModelConfig } from '../../../src/models/families.ts';
import { keptForBackwardBytes } from '../../../src/passes/checkpoint/joint-values.ts';
import { narrowPoints, recomputedBy } from '../../../src/passes/checkpoint/policies.ts';
import { recomputeInBackward } from '../../../src/passes/checkpoint/recompute.ts';
import { plannable } from '../../../src/passes/plannable/plannable.ts';
import { backwardStart } from '../../../src/passes/plannable/weight-views.ts';
import { prepare } from '../../../src/plan/prepare/prepare.ts';
import { DEFAULT_REQUEST } from '../../../src/plan/request/request.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { lossProgram, withBackward } from '../../../src/sweep/model/representative-layers.ts';
import { load, TABLE } from '../../plan/support.ts';
import { drawnInputs, graphOf, numbersOf } from '../../simulate/graph-inputs.ts';

const outputsOf = (graph: Graph): unknown[] =>
  evaluateGraph(TABLE, graph, drawnInputs(graph)).outputs.map((v) =>
    v === null ? null : numbersOf(v),
  );

const forwardCalls = (graph: Graph): string[] =>
  graph.nodes.slice(0, backwardStart(graph)).flatMap((n) => (n.kind === 'call' ? [n.name] : []));

/** Forward values that the backward pass reads, weights and inputs left out. */
function read(graph: Graph): Set<string> {
  const split = backwardStart(graph);
  const forward = new Set(forwardCalls(graph));
  const found = new Set<string>();
  for (const node of graph.nodes.slice(split))
    eachOperand(node, (name) => forward.has(name) && found.add(name));
  return found;
}

describe('recomputation as a part of the program', () => {
  test('whatever is recomputed, outputs and gradients are the same numbers', () => {
    const graph = plannable(graphOf('mlp/joint'), TABLE);
    const calls = forwardCalls(graph);
    const truth = outputsOf(graph);
    fc.assert(
      fc.property(fc.subarray(calls), (names) => {
        const { graph: again, originalOf } = recomputeInBackward(graph, new Set(names));
        lintGraph(again);
        expect(outputsOf(again)).toEqual(truth);
        // Nothing that is recomputed is read from the first run by the backward pass.
        const kept = read(again);
        for (const name of new Set(originalOf.values()))
          if (names.includes(name)) expect(kept.has(name)).toBe(false);
      }),
      { numRuns: 25 },
    );
  });

  test('recomputed nodes are named, stand before their first reader, and only what is needed is written', () => {
    const graph = plannable(graphOf('mlp/joint'), TABLE);
    const { graph: again, originalOf } = recomputeInBackward(graph, new Set(forwardCalls(graph)));
    const used = new Set(again.outputs.map((o) => o.value));
    for (const node of again.nodes) eachOperand(node, (name) => used.add(name));
    for (const [second, first] of originalOf) {
      const at = again.nodes.findIndex((n) => n.name === second);
      expect(at).toBeGreaterThanOrEqual(backwardStart(graph));
      expect(second.startsWith(`${first}_recomputed`)).toBe(true);
      expect(used.has(second)).toBe(true);
      expect(again.nodes[at].target).toBe(again.nodes.find((n) => n.name === first)?.target);
    }
    // With everything recomputed, nothing after the first pass reads a result of it.
    const first = new Set(forwardCalls(graph));
    for (const node of again.nodes.slice(backwardStart(graph)))
      eachOperand(node, (name) => expect(first.has(name)).toBe(false));
  });

  test('only calls of the forward pass can be recomputed', () => {
    const graph = plannable(graphOf('mlp/joint'), TABLE);
    const backward = graph.nodes[backwardStart(graph)].name;
    expect(() => recomputeInBackward(graph, new Set([backward]))).toThrow(
      /not a call of the forward pass/,
    );
  });

  test('the narrow points of a transformer are the sums of its residual stream', () => {
    const graph = plannable(load('torch/llama3-8b-2l/joint.expanded'), TABLE);
    const targets = narrowPoints(graph, TABLE).map(
      (name) => graph.nodes.find((n) => n.name === name)?.target,
    );
    // The embedding, two sums a layer; the last one feeds the head.
    expect(targets).toEqual([
      'aten.embedding.default',
      ...new Array<string>(4).fill('aten.add.Tensor'),
    ]);
  });

  test('policies keep less and less', () => {
    const graph = plannable(load('torch/llama3-8b-2l/joint.expanded'), TABLE);
    const cluster = loadCluster('dgx-h100');
    const size = (policy: 'full' | 'selective' | number): number =>
      recomputedBy(policy, graph, TABLE, cluster).size;
    expect(size('selective')).toBe(size(1));
    expect(size(0.5)).toBeGreaterThan(size(1));
    expect(size('full')).toBeGreaterThan(size('selective'));
    const forward = new Set(forwardCalls(graph));
    for (const name of recomputedBy('full', graph, TABLE, cluster))
      expect(forward.has(name)).toBe(true);
  });

  // Traced programs take the sums of the rows of attention in the backward pass, from a call of two
  // results.
  test.each([
    [
      'llama',
      {
        model_type: 'llama',
        hidden_size: 64,
        intermediate_size: 192,
        num_attention_heads: 4,
        num_key_value_heads: 4,
        num_hidden_layers: 2,
        vocab_size: 128,
      },
      true,
    ],
    [
      'gpt2',
      { model_type: 'gpt2', n_embd: 64, n_head: 4, n_layer: 2, vocab_size: 128, n_positions: 32 },
      false,
    ],
  ] as const)(
    'selective recomputes neither products nor attention nor the loss, and says what is kept less (%s)',
    (_, config, saves) => {
      const text = JSON.stringify({ ...config, torch_dtype: 'bfloat16' });
      const traced = plannable(
        withBackward(
          lossProgram(parseModelConfig(text), { batch: 2, sequence: 32 }, 2, TABLE),
          TABLE,
        ),
        TABLE,
      );
      const split = backwardStart(traced);
      const names = recomputedBy('selective', traced, TABLE, loadCluster('dgx-h100'));
      const classes = new Set(
        traced.nodes.flatMap((n) => (names.has(n.name) ? [TABLE.get(n.target)?.cls] : [])),
      );
      expect(classes.has('matmul')).toBe(false);
      expect(classes.has('attention')).toBe(false);
      expect(names.size).toBeGreaterThan(0);
      expect([...names].some((name) => name.includes('log_softmax'))).toBe(false);
      const kept = (graph: Graph): number => keptForBackwardBytes(graph, split, TABLE);
      const again = recomputeInBackward(traced, names).graph;
      expect(kept(again) < kept(traced)).toBe(saves);
      const { notes } = prepare(
        traced,
        { ...DEFAULT_REQUEST, mesh: 'dp=2', cluster: 'dgx-h100', checkpoint: 'selective' },
        TABLE,
      ).model.graph;
      const note = notes?.find((n) => /the backward pass finds/i.test(n));
      expect(note).toContain(saves ? 'rather than' : 'This saves no memory');
    },
  );
});
