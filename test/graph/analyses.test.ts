import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { GraphBuilder } from '../../src/graph/build.ts';
import { interpret } from '../../src/graph/interpret.ts';
import { lintGraph } from '../../src/graph/lint.ts';
import { indexGraph, lastUses, topologicalOrder } from '../../src/graph/order.ts';
import { parametersOf } from '../../src/graph/parameters.ts';
import { computePhases, withPhases } from '../../src/graph/phases.ts';
import type { Arg, Graph, Node, ValueRef, ValueType } from '../../src/graph/types.ts';
import { isGraphRef, tensorType } from '../../src/graph/value.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { programFlops } from '../../src/ops/program-flops.ts';
import { inferCall } from '../../src/ops/record/infer.ts';

/** Distinct users of each node as FX counts them: calls, plus one for the return statement. */
function userCounts(graph: Graph): Int32Array {
  const { userStart, returned } = indexGraph(graph);
  return Int32Array.from(returned, (r, i) => userStart[i + 1] - userStart[i] + r);
}

const F = tensorType('f32', [4]);

/** A random straight-line graph: each call reads earlier values by index. */
function randomGraph(
  reads: readonly (readonly number[])[],
  placeholders: number,
  returned: readonly number[],
): Graph {
  const b = new GraphBuilder('g');
  const refs: ValueRef[] = [];
  for (let i = 0; i < placeholders; i++) {
    const tangent = i % 3 === 2;
    refs.push(
      b.placeholder(
        `p${i}`,
        F,
        tangent ? { role: 'tangent', roleIndex: i } : { role: 'input', roleName: `p${i}` },
      ),
    );
  }
  for (const list of reads) {
    const args = list.map((r): Arg => refs[r % refs.length]);
    refs.push(
      b.call(
        'aten.op.default',
        [args.slice(1)],
        F,
        args.length > 0 ? { kwargs: { first: args[0] } } : {},
      ),
    );
  }
  returned.forEach((r, index) =>
    b.output({ value: refs[r % refs.length].name, role: 'output', index }),
  );
  return b.build();
}

const graphs = fc
  .tuple(
    fc.array(fc.array(fc.nat(99), { maxLength: 4 }), { maxLength: 30 }),
    fc.integer({ min: 1, max: 6 }),
    fc.array(fc.nat(99), { maxLength: 4 }),
  )
  .map(([reads, placeholders, returned]) => randomGraph(reads, placeholders, returned));

/** Names that a node reads, found without the code under test. */
function readsOf(node: Node): string[] {
  return [
    ...JSON.stringify([node.args, node.kwargs]).matchAll(/"kind":"value","name":"(\w+)"/g),
  ].map((m) => m[1]);
}

describe('order, users, liveness', () => {
  test('users and last uses agree with a search through the nodes', () => {
    fc.assert(
      fc.property(graphs, (graph) => {
        const { nodes, outputs } = graph;
        const users = userCounts(graph);
        const last = lastUses(graph);
        nodes.forEach((node, i) => {
          const using = nodes.flatMap((other, j) =>
            readsOf(other).includes(node.name) ? [j] : [],
          );
          const returned = outputs.some((o) => o.value === node.name);
          expect(users[i]).toBe(using.length + (returned ? 1 : 0));
          expect(last[i]).toBe(returned ? nodes.length : (using.at(-1) ?? i));
        });
      }),
      { seed: 3 },
    );
  });

  test('x * x is one user with two uses', () => {
    const b = new GraphBuilder('g');
    const x = b.placeholder('x', F, { role: 'arg', roleIndex: 0 });
    b.call('aten.mul.Tensor', [x, x], F);
    const graph = b.build();
    const { operands, userStart } = indexGraph(graph);
    expect([[...operands], userStart[1] - userStart[0]]).toEqual([[0, 0], 1]);
  });

  test('topological order: shuffled nodes come out operands first, a legal order unchanged', () => {
    fc.assert(
      fc.property(graphs, fc.infiniteStream(fc.nat(1000)), (graph, keys) => {
        expect(topologicalOrder(graph.nodes)).toEqual(graph.nodes);
        const shuffled = graph.nodes.map((node) => ({ node, key: keys.next().value as number }));
        shuffled.sort((a, b) => a.key - b.key);
        const seen = new Set<string>();
        for (const node of topologicalOrder(shuffled.map((s) => s.node))) {
          for (const name of readsOf(node)) expect(seen.has(name)).toBe(true);
          seen.add(node.name);
        }
        expect(seen.size).toBe(graph.nodes.length);
      }),
      { seed: 4 },
    );
  });

  test('a chain of 100,000 nodes in reverse order overflows no stack', () => {
    const nodes: Node[] = [];
    for (let i = 0; i < 100_000; i++) {
      const args: Arg[] = i === 0 ? [] : [{ kind: 'value', name: `n${i - 1}` }];
      nodes.push({
        name: `n${i}`,
        kind: 'call',
        target: 'aten.neg.default',
        args,
        kwargs: {},
        type: F,
        meta: {},
      });
    }
    expect(topologicalOrder([...nodes].reverse()).map((n) => n.name)).toEqual(
      nodes.map((n) => n.name),
    );
    expect(() =>
      topologicalOrder([
        { ...nodes[0], args: [{ kind: 'value', name: 'n99999' }] },
        ...nodes.slice(1),
      ]),
    ).toThrow(/no cycles/);
  });
});

describe('interpret', () => {
  test('numbers through calls and bodies: a scan sums its inputs', () => {
    const body = new GraphBuilder('step');
    const h = body.placeholder('h', F, { role: 'arg', roleIndex: 0 });
    const x = body.placeholder('x', F, { role: 'arg', roleIndex: 1 });
    body.output({ value: body.call('aten.add.Tensor', [h, x], F).name, role: 'output', index: 0 });
    const b = new GraphBuilder('g');
    const xs = b.placeholder('xs', tensorType('f32', [3, 4]), { role: 'arg', roleIndex: 0 });
    const init = b.placeholder('init', F, { role: 'arg', roleIndex: 1 });
    const step: Arg = { kind: 'graph', name: b.subgraph('step', body.build()) };
    const scan = b.call('scan', [step, [init], [xs], []], { kind: 'tuple', items: [F] });
    b.output({ value: scan.name, role: 'output', index: 0 });
    b.output({ value: null, role: 'output', index: 1 });
    const graph = b.build();
    const inputs: number[][] = [[1, 2, 3], [10]];
    const result = interpret<number[]>(graph, {
      placeholder: (_node, index) => inputs[index],
      call(node, operands, frame) {
        if (node.target === 'aten.add.Tensor') return [operands[0][0] + operands[1][0]];
        const [bodyArg] = node.args;
        if (!isGraphRef(bodyArg)) throw new Error('no body');
        let carry = operands[0];
        expect(frame.value('init')).toBe(carry);
        for (const item of operands[1]) carry = frame.run(bodyArg.name, [carry, [item]])[0]!;
        return carry;
      },
    });
    expect(result.outputs).toEqual([[16], null]);
    expect(() =>
      interpret<number>(graph, {
        placeholder: () => 0,
        call: (_n, _o, frame) => frame.value('later'),
      }),
    ).toThrow(/internal/);
    expect(() =>
      interpret<number>(graph, {
        placeholder: () => 0,
        call: (_n, _o, frame) => frame.run('step', [1])[0]!,
      }),
    ).toThrow(/wants more/);
  });
});

describe('phases', () => {
  test('backward is dependence on a tangent, savedOnly what no output needs', () => {
    fc.assert(
      fc.property(graphs, (graph) => {
        const phases = computePhases(graph);
        // The definition, by search: a path from a tangent; a path to an output.
        const byName = new Map(graph.nodes.map((n) => [n.name, n]));
        const reaches = (name: string): Set<string> => {
          const seen = new Set<string>();
          const open = [name];
          for (let at = open.pop(); at !== undefined; at = open.pop()) {
            if (seen.has(at)) continue;
            seen.add(at);
            open.push(...readsOf(byName.get(at)!));
          }
          return seen;
        };
        const tangents = graph.nodes.filter((n) => n.meta.role === 'tangent').map((n) => n.name);
        const needed = new Set(graph.outputs.flatMap((o) => [...reaches(o.value!)]));
        graph.nodes.forEach((node, i) => {
          const above = reaches(node.name);
          const backward = tangents.some((t) => above.has(t));
          expect(phases.backward[i] === 1).toBe(backward);
          const saved =
            tangents.length > 0 && node.kind === 'call' && !backward && !needed.has(node.name);
          expect(phases.savedOnly[i] === 1).toBe(saved);
        });
        for (const node of withPhases(graph).nodes)
          expect(node.meta.phase).toBe(
            node.kind === 'placeholder'
              ? undefined
              : phases.backward[graph.nodes.findIndex((n) => n.name === node.name)] === 1
                ? 'backward'
                : 'forward',
          );
      }),
      { seed: 5 },
    );
  });

  test('a stated optimizer phase is kept, an outdated savedOnly is not', () => {
    const b = new GraphBuilder('g');
    const g = b.placeholder('g', F, { role: 'tangent', roleIndex: 0 });
    const x = b.placeholder('x', F, { role: 'input', roleName: 'x' });
    b.call('aten.neg.default', [g], F, { meta: { phase: 'optimizer' } });
    const y = b.call('aten.neg.default', [x], F, { meta: { savedOnly: true } });
    b.output({ value: y.name, role: 'output', index: 0 });
    expect(
      withPhases(b.build())
        .nodes.slice(2)
        .map((n) => n.meta),
    ).toEqual([{ phase: 'optimizer' }, { phase: 'forward' }]);
  });
});

test('parameters: tied names are one tensor, owned by the first', () => {
  const b = new GraphBuilder('g');
  for (const name of ['a', 'b', 'c'])
    b.placeholder(name, tensorType('bf16', [8, 2]), { role: 'parameter', roleName: `m.${name}` });
  b.placeholder('x', F, { role: 'input', roleName: 'x' });
  b.tie(['m.a', 'm.c']);
  expect(
    parametersOf(b.build()).map((p) => [
      p.name,
      p.elements,
      p.bytes,
      p.placeholders.map((n) => n.name),
    ]),
  ).toEqual([
    ['m.a', 16, 32, ['a', 'c']],
    ['m.b', 16, 32, ['b']],
  ]);
});

describe('FLOPs and types are read through the interpreter', () => {
  const table = builtinOperators();
  /** x[m, k] @ w[k, n], stated as some type. */
  const product = (m: number, k: number, n: number, stated = tensorType('f32', [m, n])): Graph => {
    const b = new GraphBuilder('g');
    const x = b.placeholder('x', tensorType('f32', [m, k]), { role: 'input', roleName: 'x' });
    const w = b.placeholder('w', tensorType('f32', [k, n]), { role: 'parameter', roleName: 'w' });
    const y = b.call('aten.mm.default', [x, w], stated, { meta: { phase: 'forward' } });
    b.output({ value: y.name, role: 'output', index: 0 });
    return b.build();
  };
  const swapped = (graph: Graph): Graph => ({
    ...graph,
    nodes: [graph.nodes[0], graph.nodes[2], graph.nodes[1]],
  });
  const without = (graph: Graph): Graph => ({
    ...graph,
    nodes: graph.nodes.filter((node) => node.name !== 'w'),
  });

  test('2 m k n of a product; an unsound graph is refused, not counted as less', () => {
    expect(programFlops(product(3, 5, 7), table)).toMatchObject({
      forward: 2 * 3 * 5 * 7,
      backward: 0,
      unsizedCalls: 0,
    });
    expect(() => programFlops(without(product(3, 5, 7)), table)).toThrow(
      /uses 'w', which is not defined/,
    );
    expect(() => programFlops(swapped(product(3, 5, 7)), table)).toThrow(
      /w is read before it is known/,
    );
  });

  test("a stated type that is not the operator's own; the structure is checked before", () => {
    const retype = (node: Node, typeOf: (name: string) => ValueType): ValueType | undefined =>
      inferCall(table, node, typeOf);
    expect(() => lintGraph(product(3, 5, 7), retype)).not.toThrow();
    expect(() => lintGraph(product(3, 5, 7, tensorType('f32', [3, 8])), retype)).toThrow(
      /the file says f32\[3, 8\], but aten\.mm\.default gives f32\[3, 7\]/,
    );
    expect(() => lintGraph(swapped(product(3, 5, 7)), retype)).toThrow(
      /a placeholder follows a call|defined only later/,
    );
  });
});
