import { describe, expect, it } from 'vitest';

import { graphHash } from '../../../src/graph/hash.ts';
import { lintGraph } from '../../../src/graph/lint.ts';
import { parametersOf } from '../../../src/graph/parameters.ts';
import { parseGraph } from '../../../src/graph/text/parse.ts';
import { printGraph } from '../../../src/graph/text/write.ts';
import type { Arg, Graph, Node } from '../../../src/graph/types.ts';
import { typeText } from '../../../src/graph/value.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { graphFlops } from '../../../src/ops/flops.ts';
import { inferCall } from '../../../src/ops/record/infer.ts';
import { MLP } from '../../../src/trace/nn/feed-forward.ts';
import { Transformer } from '../../../src/trace/nn/transformer.ts';
import { dim, spec } from '../../../src/trace/record/spec.ts';
import { trace } from '../../../src/trace/trace.ts';
import { graphOf } from '../../simulate/graph-inputs.ts';

/** Graphs of our own layers beside those that torch.export writes for the same models. */

const table = builtinOperators();

/** Every call with positions instead of names, and dims numbered in order of appearance. */
function shape(graph: Graph): string[] {
  const number = new Map<string, number>();
  graph.nodes.forEach((node, i) => number.set(node.name, i));
  const dims = new Map<string, string>();
  const argument = (arg: Arg): string => {
    if (Array.isArray(arg)) return `[${arg.map(argument).join(', ')}]`;
    if (typeof arg === 'object' && arg !== null && 'kind' in arg && arg.kind === 'value')
      return `#${number.get(arg.name)}`;
    return JSON.stringify(arg);
  };
  return graph.nodes.map((node: Node) => {
    const type = typeText(node.type).replaceAll(
      /\b([a-z]\w*?)(?:=\d+)?(?=[,\]])/g,
      (_, name: string) => {
        if (!dims.has(name)) dims.set(name, `d${dims.size}`);
        return dims.get(name) ?? '';
      },
    );
    // The text of an export knows parameters by the names of their placeholders.
    const name = (node.meta.roleName ?? '').replaceAll('.', '_').replace(/^p_/, '');
    const what = node.kind === 'placeholder' ? `${node.meta.role} ${name}` : node.target;
    return `${what}(${node.args.map(argument).join(', ')}): ${type}`;
  });
}

describe('an MLP as torch.export writes it', () => {
  const mlp = new MLP('', [128, 256, 64]);

  it('node for node as mlp/export', () => {
    const graph = trace(({ x }) => mlp.forward(x), { x: spec([8, 128]) });
    expect(shape(graph)).toEqual(shape(graphOf('mlp/export')));
  });

  it('a dynamic batch traces to the graph of mlp-dynamic/export', () => {
    const graph = trace(({ x }) => mlp.forward(x), { x: spec([dim('s0', { max: 512 }), 128]) });
    expect(shape(graph)).toEqual(shape(graphOf('mlp-dynamic/export')));
    expect(shape(graph).at(-1)).toBe('aten.linear.default(#6, #2, #3): f32[d0, 64]');
  });
});

describe('a Llama of our own layers beside llama-tiny', () => {
  const net = new Transformer({
    vocabulary: 512,
    width: 64,
    hidden: 128,
    layers: 2,
    heads: 4,
    keyHeads: 2,
  });
  const graph = trace(({ x, y }) => net.loss(x, y), {
    x: spec([2, 32], 'i64'),
    y: spec([2, 32], 'i64'),
  });
  const torch = graphOf('llama-tiny/export');

  it('parameters and forward FLOPs of the record', () => {
    const parameters = parametersOf(graph);
    expect([parameters.length, parameters.reduce((n, p) => n + p.elements, 0)]).toEqual([
      21, 139_584,
    ]);
    const { byTarget, forward } = graphFlops(graph, table);
    // 512 more are the outer product of positions and frequencies, which the record lists as bmm.
    expect(byTarget).toEqual({
      'aten.linear.default': 13_631_488,
      'aten.matmul.default': 512,
      'aten.scaled_dot_product_attention.default': 1_048_576,
    });
    expect(forward).toBe(14_680_576);
  });

  it('print, parse, print, and the types of every call derived again', () => {
    const text = printGraph(graph);
    expect(printGraph(parseGraph(text))).toBe(text);
    expect(parseGraph(printGraph(graph, { source: false }))).toEqual(
      parseGraph(text.replaceAll(/ source="[^"]*"/g, '')),
    );
    expect(
      graphHash(parseGraph(text.replaceAll(/source="[^"]*"/g, 'source="elsewhere.ts:1:1"'))),
    ).toBe(graphHash(graph));
    lintGraph(graph, (node, typeOf) => inferCall(table, node, typeOf));
  });

  it('parameters have the names and shapes that transformers gives them', () => {
    const list = (g: Graph, prefix: string): string[] =>
      parametersOf(g)
        .map((p) => `${p.name.replaceAll('.', '_').replace(prefix, '')} ${typeText(p.type)}`)
        .sort();
    expect(list(graph, '')).toEqual(list(torch, 'p_model_'));
  });

  it('the same operators with the same types in the same order, from the first norm to the logits', () => {
    // transformers repeats the key heads where we leave that to the attention operator, casts to
    // the dtype that a tensor has already, and asserts metadata.
    const repeated = new Set(['f32[2, 2, 1, 32, 16]', 'f32[2, 2, 2, 32, 16]']);
    const list = (g: Graph): string[] => {
      const calls = g.nodes.filter((n) => n.kind === 'call');
      const from = calls.findIndex((n) => n.target === 'aten.pow.Tensor_Scalar');
      const to = calls.findLastIndex((n) => n.target === 'aten.linear.default');
      const kept: string[] = [];
      calls.slice(from, to + 1).forEach((n, i, all) => {
        const text = `${n.target} ${typeText(n.type)}`;
        const afterRepeat =
          i > 0 && repeated.has(typeText(all[i - 1].type)) && n.target === 'aten.reshape.default';
        if (repeated.has(typeText(n.type)) || afterRepeat) return;
        if (
          ['aten._assert_tensor_metadata.default', 'aten.to.dtype', 'aten.alias.default'].includes(
            n.target,
          )
        )
          return;
        // The last hidden states are sliced in vain in the original.
        if (n.target === 'aten.slice.Tensor' && typeText(n.type) === 'f32[2, 32, 64]') return;
        kept.push(text);
      });
      return kept;
    };
    expect(list(graph).length).toBeGreaterThan(90);
    expect(list(graph)).toEqual(list(torch));
  });
});
