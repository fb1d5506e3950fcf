import { describe, expect, test } from 'vitest';

import type { Arg, Graph, Node } from '../../src/graph/types.ts';
import { importGraph, shard } from '../../src/index.ts';
import { lower, type LowerablePlan } from '../../src/lower/lower.ts';
import type { DeviceProgram } from '../../src/lower/program/program.ts';
import { promisedCollectives } from '../../src/lower/promised.ts';
import { shrinkGraph } from '../../src/passes/sizes/shrink.ts';
import { randomPlan } from '../../src/plan/choice/random-plan.ts';
import { transferPlan } from '../../src/plan/choice/transfer.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { type Verification, verify, verifyProgram } from '../../src/simulate/verify.ts';
import { load, request, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';

const MESHES = ['d=4', 'a=2,b=2', 'a=2,b=2,c=2', 'd=3'];
/** The meshes of the larger models without SHARDWRIGHT_FULL. */
const DAILY: Readonly<Record<string, readonly string[]>> = {
  'llama-tiny': [],
  convnet: ['d=4'],
};

function sizesOf(mesh: string): number[] {
  return mesh.split(',').map((dim) => Number(dim.split('=')[1]));
}

function reduced(model: string, mesh: string): Graph {
  return shrinkGraph(load(`torch/${model}/joint.readable`), TABLE, { meshSizes: sizesOf(mesh) })
    .graph;
}

function expectRight(v: Verification): void {
  expect(v.mismatches).toEqual([]);
  expect(v.maxRelativeError).toBeLessThan(1e-9);
  expect(v.collectives).toEqual(v.promised);
}

describe('random feasible plans of real training graphs', () => {
  test.each(
    ['mlp', 'mlp-loss', 'llama-tiny', 'convnet']
      .flatMap((model) => MESHES.map((mesh) => [model, mesh]))
      .filter(([model, mesh]) => FULL || (DAILY[model]?.includes(mesh) ?? true)),
  )(
    '%s on (%s): sharded equals unsharded, collectives as planned',
    (model, mesh) => {
      const graph = reduced(model, mesh);
      const prepared = prepare(graph, request(mesh), TABLE);
      const seeds = FULL ? 20 : 1;
      let communicated = 0;
      for (let seed = 0; seed < seeds; seed++) {
        const v = verify(prepared.model.graph, randomPlan(prepared, seed), { table: TABLE, seed });
        expectRight(v);
        expect(v.nodesCompared).toBeGreaterThan(graph.nodes.length / 2);
        for (const n of Object.values(v.collectives)) communicated += n;
      }
      expect(communicated).toBeGreaterThan(0);
    },
    120_000,
  );
});

// Daily those of test/simulate/models.test.ts.
describe.runIf(FULL)('plans of the solver at full size, run at reduced sizes', () => {
  const cases = [
    ['llama3-8b-2l', 'a=2,b=2'],
    ...MESHES.flatMap((mesh) => ['gpt2-2l', 'bert-base', 'llama-tiny'].map((m) => [m, mesh])),
  ];
  test.each(cases)(
    '%s on (%s)',
    async (model, mesh) => {
      const full = prepare(load(`torch/${model}/joint.readable`), request(mesh), TABLE);
      const solved = await leastCostPlanOf(full);
      if (solved.status !== 'planned') throw new Error('infeasible');
      const small = prepare(reduced(model, mesh), request(mesh), TABLE);
      const plan = transferPlan(solved.plan, small);
      // The placements are those of the solver.
      expect(plan.nodes.map((n) => n.outputs)).toEqual(solved.plan.nodes.map((n) => n.outputs));
      const v = verify(small.model.graph, plan, { table: TABLE });
      expectRight(v);
      const communicated = Object.values(v.collectives).reduce((a, b) => a + b, 0);
      // This one is so small that its cheapest plan keeps every tensor whole.
      if (model === 'llama-tiny') expect(communicated).toBe(0);
      else expect(communicated).toBeGreaterThan(0);
    },
    180_000,
  );
});

describe('faults are found', () => {
  const mesh = 'a=2,b=2';
  const graph = reduced('mlp', mesh);
  const prepared = prepare(graph, request(mesh), TABLE);
  const planned = prepared.model.graph;
  /** A plan with collectives of several kinds. */
  const plan = [...Array(40).keys()]
    .map((seed) => randomPlan(prepared, seed))
    .find(
      (p) =>
        new Set(
          promisedCollectives({ program: planned, listed: planned }, p, TABLE).map((c) => c.kind),
        ).size >= 4,
    ) as LowerablePlan;
  const program = lower(planned, plan, { table: TABLE });
  const promised = promisedCollectives({ program: planned, listed: planned }, plan, TABLE);

  /** The program with the arguments of one node changed. */
  function changed(
    pick: (target: string) => boolean,
    change: (args: readonly Arg[]) => readonly Arg[],
  ): DeviceProgram {
    const at = program.graph.nodes.findIndex((n) => pick(n.target));
    expect(at).toBeGreaterThanOrEqual(0);
    const nodes = program.graph.nodes.map((n, i) =>
      i === at ? { ...n, args: change(n.args) } : n,
    );
    return { ...program, graph: { ...program.graph, nodes } };
  }
  const run = (p: DeviceProgram): Verification => verifyProgram(planned, p, promised, TABLE);

  test('the program as lowered is right', () => expectRight(run(program)));

  test('a sum that is a maximum', () => {
    const wrong = changed(
      (t) => /all_reduce|reduce_scatter/.test(t),
      ([x, , ...rest]) => [x, 'max', ...rest],
    );
    expect(run(wrong).mismatches.length).toBeGreaterThan(0);
  });

  test('a group over the other mesh dim', () => {
    const wrong = changed(
      (t) => t.includes('all_gather'),
      (args) => [...args.slice(0, -1), args.at(-1) === 'a' ? 'b' : 'a'],
    );
    expect(run(wrong).mismatches.length).toBeGreaterThan(0);
  });

  test("rows of a slice that are another rank's", () => {
    const wrong = changed(
      (t) => t === 'aten.slice.Tensor',
      ([x, dim, , end]) => [x, dim, 0, end],
    );
    // Either the shape or the values betray it.
    let found = 0;
    try {
      found = run(wrong).mismatches.length;
    } catch (error) {
      expect((error as { code: string }).code).toBe('E_VERIFY');
      found = 1;
    }
    expect(found).toBeGreaterThan(0);
  });

  test('a collective that the plan does not list', () => {
    const [first, ...rest] = promised;
    const v = verifyProgram(planned, program, rest, TABLE);
    expect(v.mismatches).toHaveLength(1);
    expect(v.mismatches[0].message).toContain(`an ${first.kind}`);
  });

  test('a plan of another graph is refused', () => {
    const other = reduced('mlp-loss', mesh);
    expect(() => lower(other, plan, { table: TABLE })).toThrow(
      expect.objectContaining({ code: 'E_PLAN' }),
    );
  });
});

describe('virtual devices carry the memory order of tensors', () => {
  const attention = `
class m(torch.nn.Module):
    def forward(self, q: "f64[1, 2, 8, 4]", w: "f64[8, 6]"):
        attn = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(q, q, q, 0.0, True)
        out: "f64[1, 2, 8, 4]" = attn[0]
        t: "f64[6, 8][1, 6]" = torch.ops.aten.t.default(w)
        bent: "f64[6, 8][1, 6]" = torch.ops.aten.relu.default(t)
        made: "f64[6, 8][1, 6]" = torch.ops.aten.neg.default(bent)
        return (out, made)
`;
  const pins = [
    { node: 'q', spec: 'S(3)' },
    { node: 'bent', spec: 'S(0)' },
    { node: 'made', spec: 'R' },
  ];

  /** What is found of the program where `turn` writes what stands for a value that was moved. */
  async function turned(turn: (node: Node) => readonly Node[]): Promise<Verification> {
    const result = await shard(importGraph(attention), {
      mesh: 'tp=2',
      cluster: 'dgx-h100',
      pins,
    });
    if (result.status === 'infeasible') throw new Error(result.conflict.join());
    const program = lower(result.graph, result.plan, { table: TABLE });
    const moved = new Set(program.brought?.map(({ local }) => local));
    const nodes = program.graph.nodes.flatMap((node) =>
      moved.has(node.name) ? turn(node) : [node],
    );
    const changed = { ...program, graph: { ...program.graph, nodes } };
    return verifyProgram(result.graph, changed, undefined, TABLE);
  }

  test('the program as lowered is right', async () => {
    expect((await turned((node) => [node])).mismatches).toEqual([]);
  });

  test('a moved value whose last two dims change places in memory is wrong', async () => {
    const { mismatches, maxRelativeError } = await turned((node) => {
      const { name, type } = node;
      if (type.kind !== 'tensor') throw new Error(`${name} is no tensor`);
      const other = {
        ...type,
        shape: [...type.shape.slice(0, -2), ...type.shape.slice(-2).reverse()],
      };
      const made = { ...node, name: `${name}_made` };
      const call = (of: string, as: string, target: string, args: readonly number[]): Node => ({
        ...node,
        name: as,
        target,
        args: [{ kind: 'value', name: of }, ...args],
        kwargs: {},
        type: as === name ? type : other,
      });
      return [
        made,
        call(made.name, `${name}_bent`, 'aten.transpose.int', [-2, -1]),
        call(`${name}_bent`, `${name}_rows`, 'aten.contiguous.default', []),
        call(`${name}_rows`, name, 'aten.transpose.int', [-2, -1]),
      ];
    });
    expect(maxRelativeError).toBeLessThan(1e-12);
    // The columns of bent are where they were: it is transposed in the captured program too.
    expect(mismatches.map(({ where }) => where)).toEqual(['q']);
    expect(mismatches[0].message).toMatch(/memory order .* strides \[.*\] on rank 0/);
  });
});

describe('checkpointed plans', () => {
  // Once: recomputed nodes right before the backward pass were renamed when the program was
  // prepared again, and first runs that only they had read were missing in the unsharded run.
  test.each(['full', 'selective', 0.5] as const)(
    'recomputed nodes (%s) are lowered and agree with the unsharded run',
    async (checkpoint) => {
      const full = prepare(
        load('torch/mlp/joint.readable'),
        request('a=2,b=2', { checkpoint, objective: 'parameter-memory' }),
        TABLE,
      );
      expect(full.question.program.nodes.some((n) => n.name.endsWith('_recomputed'))).toBe(true);
      const solved = await leastCostPlanOf(full);
      if (solved.status !== 'planned') throw new Error('infeasible');
      const graph = shrinkGraph(full.question.program, TABLE, { meshSizes: [2, 2] }).graph;
      const v = verify(
        graph,
        transferPlan(solved.plan, prepare(graph, full.question.request, TABLE)),
        { table: TABLE },
      );
      expectRight(v);
      expect(v.nodesCompared).toBeGreaterThan(20);
    },
  );
});

test('grouped products: the plan says that it assumes balanced routing', () => {
  const of = (model: string): string =>
    prepare(reducedJoint(model), request('d=4'), TABLE)
      .notes.filter((a) => a.includes('balanced'))
      .join();
  expect(of('joint/mixtral-tiny-grouped/joint')).toMatch(/assumes balanced routing.*\(\d+ nodes\)/);
  expect(of('torch/mlp/joint.readable')).toBe('');
});

function reducedJoint(model: string): Graph {
  return shrinkGraph(load(model), TABLE, { meshSizes: [4] }).graph;
}
