import { describe, expect, it, test } from 'vitest';

import { suggestion } from '../../../src/errors.ts';
import type { Graph } from '../../../src/graph/types.ts';
import { offered as offeredRules } from '../../../src/ops/expansion/patterns.ts';
import { ruleText } from '../../../src/ops/record/rule.ts';
import type { Model } from '../../../src/plan/model/model.ts';
import { prepare } from '../../../src/plan/prepare/prepare.ts';
import type { PlanRequest } from '../../../src/plan/request/request.ts';
import { whyNotOffered } from '../../../src/plan/restrict/pin-reasons.ts';
import { input, parameter } from '../../../src/trace/record/spec.ts';
import type { Tensor } from '../../../src/trace/tensor/tensor.ts';
import { trace } from '../../../src/trace/trace.ts';
import { load, planFor, request, TABLE } from '../support.ts';

/** A pin that no strategy meets is refused with the flag and the reason. */

const graph = trace(
  ({ x, w, v }: Record<'x' | 'w' | 'v', Tensor>) => x.matmul(w).gelu().matmul(v).softmax(-1),
  { x: input([10, 64]), w: parameter([64, 48]), v: parameter([48, 6]) },
);

const because = (
  mesh: string,
  node: string,
  spec: string,
  more: Partial<PlanRequest> = {},
): Promise<unknown> =>
  planFor(graph, mesh, { ...more, pins: [{ node, spec }] }).then(
    () => 'a plan',
    (error: unknown) => (error instanceof Error ? error.message : error),
  );

test.each<[mesh: string, node: string, spec: string, reason: string, more?: Partial<PlanRequest>]>([
  ['a=8', 'w', 'S(2)', 'it has no dim 2: its dims are 0 to 1'],
  ['a=16', 'x', 'S(0)', 'dim 0 has 10 rows, fewer than its 16 pieces'],
  ['a=2,b=4', 'v', 'S(1)S(1)', 'dim 1 has 6 rows, fewer than its 8 pieces'],
  [
    'a=4',
    'x',
    'S(0)',
    'dim 0 of 10 rows does not divide into 4 pieces, and --uneven forbid asks for that',
    { uneven: 'forbid' },
  ],
  ['a=2', 'w', 'P(sum)', 'what a program is given is whole; P(sum) is of results only'],
  ['a=2', 'w', '_S(0, 3)', '_S(0, 3) is a further kind of cut, which --cut offers'],
  [
    'a=2,b=2',
    'x',
    'S(0)[1]S(0)[0]',
    'only parameters are offered cuts in another order than that of the mesh dims',
  ],
  [
    'a=2,b=2',
    'mm',
    'S(0)[1]S(0)[0]',
    'results are cut in the order of the mesh dims; another order is offered for parameters',
  ],
  ['a=2', 'mm', 'P(max)', 'no rule of aten.mm.default leaves the result P(max)'],
  [
    'a=2,b=2',
    'mm',
    'RP(max)',
    "no rule of aten.mm.default leaves the result P(max) on mesh dim 'b'",
  ],
  ['a=2', 'gelu', 'P(sum)', 'no rule of aten.gelu.default leaves the result P(sum)'],
  // The rule sums over the 48 columns of the one and rows of the other: eight pieces of six, of
  // seven none.
  [
    'a=56',
    'mm_1',
    'P(sum)',
    'the rule of aten.mm.default that leaves it so (S(1), S(0) -> P(sum)) cuts dim 1 of %gelu, 48 rows, into 56 pieces',
  ],
])('--mesh %s --pin %s=%s: %s', async (mesh, node, spec, reason, more) => {
  const message = await because(mesh, node, spec, more);
  expect(message).toContain(`--pin ${node}=${spec}: '${node}' [`);
  expect(String(message).endsWith(`cannot be ${spec}: ${reason}`), String(message)).toBe(true);
});

it('the hint of a name that is not there names each candidate once', async () => {
  const mlp = trace(({ x, W1 }: Record<'x' | 'W1', Tensor>) => x.matmul(W1), {
    x: input([8, 8]),
    W1: parameter([8, 8]),
  });
  const error: unknown = await planFor(mlp, 'a=2', { pins: [{ node: 'w1', spec: 'R' }] }).catch(
    (e: unknown) => e,
  );
  expect(error).toMatchObject({ code: 'E_REF', details: { hint: "did you mean 'W1'?" } });
  expect(suggestion('zzzzzz', ['b', 'a', 'b'], 'nodes')).toBe('known nodes: a, b');
});

it('sums that are only handed on need a pending operand', async () => {
  const scaled = trace(({ x }: Record<'x', Tensor>) => x.mul(2).neg(), { x: input([8, 8]) });
  const pinned = planFor(scaled, 'a=2', { pins: [{ node: 'neg', spec: 'P(sum)' }] });
  await expect(pinned).rejects.toThrow(
    'cannot be P(sum): aten.neg.default only hands P(sum) on from its inputs, and nothing leaves %mul pending',
  );
});

it('only tensors can be pinned: of a call with several results, each by its own name', async () => {
  const split = trace(({ x }: Record<'x', Tensor>) => x.split(4, 0).map((part) => part.neg()), {
    x: input([8, 8]),
  });
  const name = split.nodes.find((node) => node.type.kind === 'tuple')!.name;
  const parts = split.nodes
    .filter((node) => node.target === 'operator.getitem')
    .map((node) => node.name);
  expect(parts).toHaveLength(2);
  await expect(
    planFor(split, 'a=2', { pins: [{ node: name, spec: 'S(0)' }] }),
  ).rejects.toMatchObject({
    code: 'E_PIN',
    message: `--pin ${name}=S(0): '${name}' is not a tensor, but a tuple value`,
    details: { hint: `pin its results: --pin ${parts[0]}=S(0) --pin ${parts[1]}=S(0)` },
  });
});

describe('every sharding that a real graph does not offer', () => {
  const llama = load('torch/llama-tiny/joint.expanded');
  const models = new Map<string, Model>();
  const modelOf = (program: Graph, mesh: string, more: Partial<PlanRequest> = {}): Model => {
    const key = `${mesh} ${JSON.stringify(more)}`;
    let model = models.get(key);
    if (model === undefined)
      models.set(key, (model = prepare(program, request(mesh, more), TABLE).model));
    return model;
  };

  /** What the strategies of a value's producer leave. */
  function offered({ flow, strategies, space }: Model, value: number): ReadonlySet<string> {
    const { node, result } = flow.values[value];
    const { set } = strategies.nodes[node]!;
    const width = set.inputCount + set.outputCount;
    const ids = Array.from(
      { length: set.count },
      (_, a) => set.specs[a * width + set.inputCount + result],
    );
    return new Set(ids.filter((id) => id >= 0).map((id) => space.text(id)));
  }

  /** One value for each content of its producer: equal calls have equal strategies. */
  function values({ flow, strategies }: Model): number[] {
    const seen = new Set<string>();
    return [...flow.values.keys()].filter((v) => {
      const { node, result } = flow.values[v];
      const key = `${strategies.nodes[node]!.content}:${result}`;
      return !seen.has(key) && seen.add(key) !== undefined;
    });
  }

  it('has a reason that is true', () => {
    const model = modelOf(llama, 'a=2,b=3', { uneven: 'forbid' });
    const free = modelOf(llama, 'a=2,b=3');
    const { space, flow, strategies } = model;
    const kinds = new Map<string, number>();
    for (const value of values(model)) {
      const { node, result, meta } = flow.values[value];
      const { call, record, set } = strategies.nodes[node]!;
      const known = offered(model, value);
      for (const id of space.enumerate(meta.shape.length + 1, { partialOps: ['sum', 'max'] })) {
        const text = space.text(id);
        if (known.has(text)) continue;
        const reason = whyNotOffered(model, value, id);
        const [kind] =
          /no dim|fewer than|--uneven forbid|is whole|no rule|only hands|hand pending|the rule of/.exec(
            reason,
          ) ?? [];
        expect(kind, `${text} of ${model.graph.nodes[node].name}: ${reason}`).toBeDefined();
        kinds.set(kind!, (kinds.get(kind!) ?? 0) + 1);
        const cuts = space
          .get(id)
          .placements.flatMap((p, m) => (p.dim === undefined ? [] : [{ dim: p.dim, m }]));
        const [missing] = /no dim (\d+)/.exec(reason)?.slice(1) ?? [];
        if (missing !== undefined) expect(Number(missing)).toBe(meta.shape.length);
        const [, dim, rows, pieces] =
          /^dim (\d+) has (\d+) rows, fewer than its (\d+) pieces/.exec(reason) ?? [];
        if (dim !== undefined) {
          const product = cuts
            .filter((c) => c.dim === Number(dim))
            .reduce((n, c) => n * space.mesh.sizes[c.m], 1);
          expect([Number(rows), Number(pieces)]).toEqual([meta.shape[Number(dim)], product]);
          expect(product).toBeGreaterThan(meta.shape[Number(dim)]);
        }
        // Without the flag that the reason names the sharding is there.
        if (reason.endsWith('and --uneven forbid asks for that'))
          expect(
            meta.shape.some(
              (size, d) =>
                size %
                  cuts.filter((c) => c.dim === d).reduce((n, c) => n * space.mesh.sizes[c.m], 1) !==
                0,
            ),
          ).toBe(true);
        if (reason.includes('--uneven forbid rules out'))
          expect(offered(free, value)).toContain(text);
        const [, word] = /^no rule of .* leaves .* (\S+) on mesh dim/.exec(reason) ?? [];
        const column = set.inputCount + result;
        const left = (
          call === undefined
            ? []
            : offeredRules(record?.shard(call) ?? [], [...call.inputs, ...call.outputs], 'rows')
        ).map((r) => ruleText(r).split(/ -> |, (?!d\d)/)[column]);
        if (word !== undefined) expect(left).not.toContain(word);
        const [, handed] = /only hands (\S+) on/.exec(reason) ?? [];
        if (handed !== undefined) {
          expect(left).toContain(handed);
          expect(
            set.rules.some((r) => ruleText(r).split(/ -> |, (?!d\d)/)[column] === handed),
          ).toBe(false);
        }
      }
    }
    // Each of the filters is met.
    for (const kind of [
      'no dim',
      'fewer than',
      '--uneven forbid',
      'is whole',
      'no rule',
      'only hands',
    ])
      expect(kinds.get(kind) ?? 0, kind).toBeGreaterThan(10);
  });
});
