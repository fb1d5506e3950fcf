import { describe, expect, test } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import type { Graph } from '../../src/graph/types.ts';
import { lower, type LowerablePlan, plannedProgram } from '../../src/lower/lower.ts';
import { programAtRank } from '../../src/lower/program/program.ts';
import { promisedCollectives } from '../../src/lower/promised.ts';
import { shrinkGraph } from '../../src/passes/sizes/shrink.ts';
import { randomPlan } from '../../src/plan/choice/random-plan.ts';
import { transferPlan } from '../../src/plan/choice/transfer.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { type Verification, verify, verifyProgram } from '../../src/simulate/verify.ts';
import { load, planFor, request, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';

function expectRight(v: Verification): void {
  expect(v.mismatches).toEqual([]);
  expect(v.maxRelativeError).toBeLessThan(1e-9);
  expect(v.collectives).toEqual(v.promised);
}

const placement = (plan: Pick<Plan, 'nodes'>, name: string): readonly string[] => {
  const node = plan.nodes.find((n) => n.name === name);
  if (node === undefined) throw new Error(`no node ${name}`);
  return node.outputs;
};

/** Two branches: the rows of x are best cut for the one, its columns for the other. */
const branching = parseGraph(`swgraph 1
graph @branching {
  in %p: b8[] input "p"
  in %x: f32[8, 12] input "x"
  in %w: f32[12, 16] parameter "w"
  in %v: f32[8, 16] parameter "v"
  %cond = cond(%p, @by_rows, @by_columns, [%x, %w, %v]): (f32[8, 16])
  %y = operator.getitem(%cond, 0): f32[8, 16]
  out %y output 0
  graph @by_rows {
    in %x: f32[8, 12] arg 0
    in %w: f32[12, 16] arg 1
    in %v: f32[8, 16] arg 2
    %h = aten.mm.default(%x, %w): f32[8, 16]
    %s = aten._softmax.default(%h, 1, false): f32[8, 16]
    out %s output 0
  }
  graph @by_columns {
    in %x: f32[8, 12] arg 0
    in %w: f32[12, 16] arg 1
    in %v: f32[8, 16] arg 2
    %s = aten._softmax.default(%v, 0, false): f32[8, 16]
    out %s output 0
  }
}
`);

/** h' = tanh(x W + h), the carry cut by columns in the body. */
const scanned = parseGraph(`swgraph 1
graph @scanned {
  in %w: f32[12, 16] parameter "w"
  in %xs: f32[5, 8, 12] input "xs"
  in %h0: f32[8, 16] input "h0"
  %scan = scan(@step, [%h0], [%xs], [%w]): (f32[8, 16], f32[5, 8, 16])
  %h = operator.getitem(%scan, 0): f32[8, 16]
  %ys = operator.getitem(%scan, 1): f32[5, 8, 16]
  out %h output 0
  out %ys output 1
  graph @step {
    in %h: f32[8, 16] arg 0
    in %x: f32[8, 12] arg 1
    in %w: f32[12, 16] arg 2
    %a = aten.mm.default(%x, %w): f32[8, 16]
    %sum = aten.add.Tensor(%a, %h): f32[8, 16]
    %next = aten.tanh.default(%sum): f32[8, 16]
    out %next output 0
    out %next output 1
  }
}
`);

describe('control flow on virtual devices equals the unsharded run', () => {
  test('branches that prefer different placements end in equal ones; each pays for its own way there', async () => {
    const pins = ['0.h=S(0)', '0.s=S(0)', '1.s=S(1)'].map((pin) => ({
      node: `cond.${pin.split('=')[0]}`,
      spec: pin.split('=')[1],
    }));
    const plan = await planFor(branching, 'd=4', { pins });
    const [meet] = plan.nodes.filter((n) => n.target === 'aten.where.self');
    expect(meet.inputs[1]).toBe(meet.inputs[2]);
    expect(meet.inputs[0]).toBe('R');
    // One of them has to move; which one runs is data, and so is whether that is paid.
    const seen = new Set<number>();
    for (let seed = 0; seed < 8; seed++) {
      const v = verify(branching, plan, { table: TABLE, seed });
      expectRight(v);
      seen.add(Object.values(v.collectives).reduce((a, b) => a + b, 0));
    }
    expect(seen.size).toBe(2);
  });

  test('a carry that its body leaves cut by columns is so at entry, in the body and at exit', async () => {
    const plan = await planFor(scanned, 'd=4', {
      pins: [
        { node: 'scan.next', spec: 'S(1)' },
        { node: 'w', spec: 'S(1)' },
      ],
    });
    expect(placement(plan, 'scan.carry.0')).toEqual(['S(1)']);
    const [carry] = plan.outputs.filter((o) => o.role === 'carry');
    expect(carry).toMatchObject({ placement: 'S(1)', redistributions: [] });
    const { graph } = lower(scanned, plan, { table: TABLE });
    expect(printGraph(graph.subgraphs.step, { source: false })).toMatchInlineSnapshot(`
      "swgraph 1
      graph @step {
        in %scan.carry.0_1: f32[8, 4] arg 0
        in %scan.x.0_1: f32[8, 12] arg 1
        in %w_1: f32[12, 4] arg 2
        %scan.a = aten.mm.default(%scan.x.0_1, %w_1): f32[8, 4]
        %scan.sum = aten.add.Tensor(%scan.a, %scan.carry.0_1): f32[8, 4]
        %scan.next = aten.tanh.default(%scan.sum): f32[8, 4]
        out %scan.next output 0
        out %scan.next output 1
      }
      "
    `);
    const v = verify(scanned, plan, { table: TABLE });
    expectRight(v);
    // Every trip is compared: three calls in each of five, the inputs and the two results.
    expect(v.nodesCompared).toBe(3 * 5 + 3 + 2);
  });

  test('collectives of a body run in every trip, those of what it does not change once', async () => {
    const pins = [
      { node: 'w', spec: 'S(0)' },
      { node: 'scan.a', spec: 'S(1)' },
      { node: 'scan.next', spec: 'S(0)' },
    ];
    const plan = await planFor(scanned, 'd=4', { pins });
    const listed = plan.nodes.flatMap((n) =>
      n.redistributions.flatMap((r) => r.collectives.map(() => r.times ?? 1)),
    );
    expect(new Set(listed)).toEqual(new Set([1, 5]));
    const v = verify(scanned, plan, { table: TABLE });
    expectRight(v);
    const once = listed.filter((times) => times === 1).length;
    expect(Object.values(v.collectives).reduce((a, b) => a + b, 0)).toBe(
      once + 5 * (listed.length - once),
    );
  });

  const mapped = parseGraph(`swgraph 1
graph @mapped {
  in %w: f32[512, 512] parameter "w"
  in %xs: f32[64, 128, 512] input "xs"
  %map = map(@each, [%xs], [%w]): (f32[64, 128, 512], f32[64, 512])
  %y = operator.getitem(%map, 0): f32[64, 128, 512]
  %z = operator.getitem(%map, 1): f32[64, 512]
  out %y output 0
  out %z output 1
  graph @each {
    in %x: f32[128, 512] arg 0
    in %w: f32[512, 512] arg 1
    %h = aten.mm.default(%x, %w): f32[128, 512]
    %t = aten.tanh.default(%h): f32[128, 512]
    %s = aten.sum.dim_IntList(%t, [0]): f32[512]
    out %t output 0
    out %s output 1
  }
}
`);

  test('a map whose leading dim is cut keeps that cut: each device runs the whole body for its own rows', async () => {
    const plan = await planFor(mapped, 'd=4', {
      maps: 'rows',
      pins: [{ node: 'xs', spec: 'S(0)' }],
    });
    const whole = await planFor(mapped, 'd=1', { maps: 'rows' });
    expect(placement(plan, 'map')).toEqual(['S(0)', 'S(0)']);
    expect(plan.outputs.map((o) => [o.placement, o.redistributions])).toEqual([
      ['S(0)', []],
      ['S(0)', []],
    ]);
    expect(plan.objective.communicationSeconds).toBe(0);
    // A quarter of the trips on each device, and nothing else.
    expect(plan.objective.computeSeconds / whole.objective.computeSeconds).toBeCloseTo(1 / 4, 2);
    const { graph: small } = shrinkGraph(mapped, TABLE, { meshSizes: [4] });
    const prepared = prepare(small, request('d=4', { maps: 'rows' }), TABLE);
    const v = verify(small, transferPlan(plan, prepared), { table: TABLE });
    expectRight(v);
    expect(v.collectives).toEqual({});
    // The body is the one of the program: nothing of it is cut.
    const program = lower(small, transferPlan(plan, prepared), { table: TABLE });
    const [body] = Object.values(program.graph.subgraphs);
    expect(body.nodes.map((n) => n.type)).toEqual(small.subgraphs['each'].nodes.map((n) => n.type));
  });

  test('rows that no mesh dim cuts evenly are not shared out', () => {
    const graph = load('torch/hop-map/export.readable');
    for (const mesh of ['d=2', 'd=3', 'a=2,b=2']) {
      const prepared = prepare(graph, request(mesh, { maps: 'rows' }), TABLE);
      for (let seed = 0; seed < (FULL ? 10 : 3); seed++)
        expectRight(verify(graph, randomPlan(prepared, seed), { table: TABLE, seed }));
    }
  });

  const fixtures = [
    'hop-cond/export.readable',
    'hop-map/export.readable',
    'hop-scan/export.readable',
    'hop-while/export.readable',
    'hop-cond-joint/joint.expanded',
    'hop-map-joint/joint.expanded',
    'hop-scan-joint/joint.expanded',
  ];
  const meshes = FULL ? ['d=4', 'a=2,b=2', 'a=2,b=2,c=2', 'd=3'] : ['a=2,b=2', 'd=3'];
  const cases = fixtures.flatMap((name) => meshes.map((mesh) => [name, mesh]));
  // Daily every other program on every other mesh.
  test.each(cases.filter((_, i) => FULL || i % 4 === 0 || i % 4 === 3))(
    '%s of PyTorch on (%s)',
    (name, mesh) => {
      const graph = load(`torch/${name}`);
      const prepared = prepare(graph, request(mesh), TABLE);
      let communicated = 0;
      for (let seed = 0; seed < (FULL ? 40 : 2); seed++) {
        const v = verify(graph, randomPlan(prepared, seed), { table: TABLE, seed });
        expectRight(v);
        communicated += Object.values(v.collectives).reduce((a, b) => a + b, 0);
      }
      expect(communicated).toBeGreaterThan(0);
    },
  );
});

describe('what a body is', () => {
  test('uneven cuts: one program text, with the sizes of each rank in its bodies', () => {
    const graph = load('torch/hop-scan/export.readable');
    const prepared = prepare(graph, request('d=3'), TABLE);
    const uneven = [...Array(30).keys()]
      .map((seed) => lower(graph, randomPlan(prepared, seed), { table: TABLE }))
      .find(
        (program) =>
          program.symbols.size > 0 && /rows\(/.test(JSON.stringify(program.graph.subgraphs)),
      );
    if (uneven === undefined) throw new Error('no plan cuts a body unevenly');
    for (const rank of [0, 1, 2])
      expect(printGraph(programAtRank(uneven, rank), { source: false })).not.toMatch(/rows\(/);
    const text = printGraph(uneven.graph);
    expect(printGraph(parseGraph(text))).toBe(text);
  });

  test('a body that two calls share has one form for each of them', () => {
    const graph = parseGraph(`swgraph 1
graph @twice {
  in %x: f32[4, 6] input "x"
  in %y: f32[3, 8] input "y"
  %m = map(@double, [%x], []): (f32[4, 6])
  %a = operator.getitem(%m, 0): f32[4, 6]
  %n = map(@double, [%a], []): (f32[4, 6])
  %b = operator.getitem(%n, 0): f32[4, 6]
  out %b output 0
  graph @double {
    in %r: f32[6] arg 0
    %d = aten.add.Tensor(%r, %r): f32[6]
    out %d output 0
  }
}
`);
    const prepared = prepare(graph, request('d=2'), TABLE);
    for (let seed = 0; seed < 6; seed++) {
      const plan = randomPlan(prepared, seed);
      expect(Object.keys(lower(graph, plan, { table: TABLE }).graph.subgraphs)).toEqual([
        'double',
        'double_1',
      ]);
      expectRight(verify(graph, plan, { table: TABLE, seed }));
    }
  });

  test('faults in a body are found: a wrong reduction, and a collective too many', () => {
    const graph = load('torch/hop-scan/export.readable');
    const prepared = prepare(graph, request('a=2,b=2'), TABLE);
    const reduces = (g: Graph): boolean =>
      g.nodes.some((n) => /all_reduce|reduce_scatter/.test(n.target));
    const plan = [...Array(60).keys()]
      .map((seed) => randomPlan(prepared, seed))
      .find((p) =>
        Object.values(lower(graph, p, { table: TABLE }).graph.subgraphs).some(reduces),
      ) as LowerablePlan;
    const program = lower(graph, plan, { table: TABLE });
    const promised = promisedCollectives(plannedProgram(graph, plan, TABLE), plan, TABLE);
    expectRight(verifyProgram(graph, program, promised, TABLE));
    const subgraphs = Object.fromEntries(
      Object.entries(program.graph.subgraphs).map(([name, body]) => [
        name,
        {
          ...body,
          nodes: body.nodes.map((n) =>
            /all_reduce|reduce_scatter/.test(n.target)
              ? { ...n, args: n.args.map((a) => (a === 'sum' ? 'max' : a)) }
              : n,
          ),
        },
      ]),
    );
    const wrong = { ...program, graph: { ...program.graph, subgraphs } };
    expect(verifyProgram(graph, wrong, promised, TABLE).mismatches.length).toBeGreaterThan(0);
    const inBody = promised.findIndex((c) => c.scopes[0] !== 0);
    expect(inBody).toBeGreaterThanOrEqual(0);
    const fewer = promised.filter((_, i) => i !== inBody);
    // One for each trip.
    expect(verifyProgram(graph, program, fewer, TABLE).mismatches.length).toBeGreaterThan(1);
  });

  test('the graph with its bodies in line is not a program, and is not taken for one', () => {
    const prepared = prepare(scanned, request('d=2'), TABLE);
    const plan = randomPlan(prepared, 0);
    expect(() => lower(prepared.model.graph, plan, { table: TABLE })).toThrow(
      expect.objectContaining({ code: 'E_PLAN' }),
    );
    expectRight(verify(plannedProgram(scanned, plan, TABLE).program, plan, { table: TABLE }));
  });

  test('a loop that carries a number is refused by name', () => {
    const graph = parseGraph(`swgraph 1
graph @counted {
  in %x: f32[4] input "x"
  %w = while_loop(@test, @step, [0, %x], []): (sym, f32[4])
  %y = operator.getitem(%w, 1): f32[4]
  out %y output 0
  graph @test {
    in %i: sym arg 0
    in %v: f32[4] arg 1
    %s = aten.sum.default(%v): f32[]
    %t = aten.lt.Scalar(%s, 9.0): b8[]
    out %t output 0
  }
  graph @step {
    in %i: sym arg 0
    in %v: f32[4] arg 1
    %u = aten.add.Scalar(%v, 1.0): f32[4]
    out %i output 0
    out %u output 1
  }
}
`);
    const prepared = prepare(graph, request('d=2'), TABLE);
    expect(() => lower(graph, randomPlan(prepared, 1), { table: TABLE })).toThrow(
      expect.objectContaining({
        code: 'E_UNSUPPORTED',
        message: expect.stringContaining('while_loop') as string,
      }),
    );
  });
});

/** Programs that random ones showed to be wrong once, each at its smallest. */
describe('regression', () => {
  const reuses = (plan: Pick<Plan, 'nodes' | 'outputs'>, of: (name: string) => boolean): boolean =>
    [
      ...plan.nodes.filter((n) => of(n.name)),
      ...plan.outputs.filter((o) => o.role === 'carry'),
    ].some((n) => n.redistributions.some((r) => r.copy === 'reused'));

  /** In `npm test` a quarter of the seeds. */
  function allRight(
    graph: Graph,
    mesh: string,
    most: number,
    seen?: (plan: Pick<Plan, 'nodes' | 'outputs'>) => boolean,
  ): void {
    const prepared = prepare(graph, request(mesh), TABLE);
    const seeds = FULL ? most : most / 4;
    let found = 0;
    for (let seed = 0; seed < seeds; seed++) {
      const plan = randomPlan(prepared, seed);
      if (seen?.(plan) === true) found++;
      // What is moved for a mark is moved as often as its body runs: nothing is moved for free.
      for (const { redistributions } of [...plan.nodes, ...plan.outputs])
        for (const r of redistributions) expect(r.times).not.toBe(0);
      expectRight(verify(graph, plan, { table: TABLE, seed }));
    }
    if (seen !== undefined) expect(found).toBeGreaterThan(0);
  }

  test('branches that use and return one value from around them share its copies', () => {
    const graph = parseGraph(`swgraph 1
graph @g {
  in %i: i64[] input "i"
  in %x: f32[6, 4] input "x"
  %c = case(%i, [@a, @b, @c], [%x]): (f32[6, 4], f32[6, 4])
  %y = operator.getitem(%c, 0): f32[6, 4]
  %z = operator.getitem(%c, 1): f32[6, 4]
  out %y output 0
  out %z output 1
  graph @a {
    in %x: f32[6, 4] arg 0
    %t = aten.tanh.default(%x): f32[6, 4]
    out %x output 0
    out %t output 1
  }
  graph @b {
    in %x: f32[6, 4] arg 0
    out %x output 0
    out %x output 1
  }
  graph @c {
    in %x: f32[6, 4] arg 0
    %t = aten.neg.default(%x): f32[6, 4]
    out %t output 0
    out %t output 1
  }
}
`);
    allRight(graph, 'd=2', 60, (plan) => reuses(plan, (name) => name.startsWith('c.out.')));
  });

  test('what a loop of the backward pass hands on is moved without being called forward', () => {
    const graph = parseGraph(`swgraph 1
graph @g {
  in %x: f32[12, 2] parameter "x"
  in %p: b8[3] input "p"
  in %tangents_1: f32[12, 2] tangent 0
  %y = aten.tanh.default(%x): f32[12, 2] ; forward
  %s = scan(@body, [%tangents_1], [%p], [], reverse=true): (f32[12, 2]) ; backward
  %d = operator.getitem(%s, 0): f32[12, 2] ; backward
  out %y output 0
  out %d grad "x"
  graph @body {
    in %d: f32[12, 2] arg 0
    in %q: b8[] arg 1
    %c = cond(%q, @kept, @same, [%d]): (f32[12, 2]) ; backward
    %r = operator.getitem(%c, 0): f32[12, 2] ; backward
    out %r output 0
    graph @kept {
      in %d: f32[12, 2] arg 0
      out %d output 0
    }
    graph @same {
      in %d: f32[12, 2] arg 0
      out %d output 0
    }
  }
}
`);
    allRight(graph, 'a=2,b=4', 80);
  });

  test('without dropout the random state that attention returns in a map is the same everywhere', () => {
    const graph = parseGraph(`swgraph 1
graph @g {
  in %x: f32[2, 2, 2, 3, 2] input "x"
  %m = map(@each, [%x], []): (f32[2, 2, 2, 3, 2], i64[2])
  %o = operator.getitem(%m, 0): f32[2, 2, 2, 3, 2]
  %z = operator.getitem(%m, 1): i64[2]
  out %o output 0
  out %z output 1
  graph @each {
    in %x: f32[2, 2, 3, 2] arg 0
    %a = aten._scaled_dot_product_efficient_attention.default(%x, %x, %x, none, true, 0.0, false): (f32[2, 2, 3, 2], f32[2, 2, 32], i64[], i64[])
    %o = operator.getitem(%a, 0): f32[2, 2, 3, 2]
    %s = operator.getitem(%a, 3): i64[]
    out %o output 0
    out %s output 1
  }
}
`);
    const prepared = prepare(graph, { ...request('d=3'), maps: 'rows' }, TABLE);
    for (let seed = 0; seed < 6; seed++)
      expectRight(verify(graph, randomPlan(prepared, seed), { table: TABLE, seed }));
  });

  test('a copy that the program returns may be made for a loop that hands the value on', () => {
    const graph = parseGraph(`swgraph 1
graph @g {
  in %x: f32[6, 4] input "x"
  in %h: f32[6, 4] input "h"
  %a = aten.tanh.default(%x): f32[6, 4]
  %s = scan(@step, [%h], [], [%a], length=2): (f32[6, 4], f32[2, 6, 4])
  %y = operator.getitem(%s, 0): f32[6, 4]
  %z = operator.getitem(%s, 1): f32[2, 6, 4]
  out %a output 0
  out %y output 1
  out %z output 2
  graph @step {
    in %h: f32[6, 4] arg 0
    in %a: f32[6, 4] arg 1
    %m = aten.mul.Tensor(%h, %a): f32[6, 4]
    out %a output 0
    out %m output 1
  }
}
`);
    allRight(graph, 'd=2', 80, (plan) => reuses(plan, () => false));
  });

  test('views of one value in different bodies, and the row of a trip beside a row by number, are not one value', () => {
    const graph = parseGraph(`swgraph 1
graph @g {
  in %p: b8[] input "p"
  in %xs: f32[4, 6] input "xs"
  %c = cond(%p, @a, @b, [%xs]): (f32[6, 4])
  %y = operator.getitem(%c, 0): f32[6, 4]
  %m = map(@each, [%xs], [%xs]): (f32[4, 6])
  %z = operator.getitem(%m, 0): f32[4, 6]
  out %y output 0
  out %z output 1
  graph @a {
    in %x: f32[4, 6] arg 0
    %t = aten.t.default(%x): f32[6, 4]
    out %t output 0
  }
  graph @b {
    in %x: f32[4, 6] arg 0
    %t = aten.t.default(%x): f32[6, 4]
    %n = aten.neg.default(%t): f32[6, 4]
    out %n output 0
  }
  graph @each {
    in %row: f32[6] arg 0
    in %x: f32[4, 6] arg 1
    %first = aten.select.int(%x, 0, 0): f32[6]
    %d = aten.sub.Tensor(%row, %first): f32[6]
    out %d output 0
  }
}
`);
    allRight(graph, 'd=2', 40);
  });

  test('the test of a loop and its body take their own copies of a carry', () => {
    const graph = parseGraph(`swgraph 1
graph @g {
  in %x: f32[6, 4] input "x"
  %w = while_loop(@test, @step, [%x], [], max_trips=3): (f32[6, 4])
  %y = operator.getitem(%w, 0): f32[6, 4]
  out %y output 0
  graph @test {
    in %v: f32[6, 4] arg 0
    %m = aten.amax.default(%v, [0, 1]): f32[]
    %t = aten.lt.Scalar(%m, 9.0): b8[]
    out %t output 0
  }
  graph @step {
    in %v: f32[6, 4] arg 0
    %c = aten.cumsum.default(%v, 0): f32[6, 4]
    %d = aten.cumsum.default(%v, 1): f32[6, 4]
    %u = aten.add.Tensor(%c, %d): f32[6, 4]
    out %u output 0
  }
}
`);
    allRight(graph, 'd=2', 60);
  });

  test('row numbers that are used in a body stay inside of what they index there', () => {
    const graph = parseGraph(`swgraph 1
graph @g {
  in %p: b8[] input "p"
  in %i: i64[5] input "i"
  in %w: f32[3, 4] parameter "w"
  %c = cond(%p, @a, @b, [%i, %w]): (f32[5, 4])
  %y = operator.getitem(%c, 0): f32[5, 4]
  out %y output 0
  graph @a {
    in %i: i64[5] arg 0
    in %w: f32[3, 4] arg 1
    %e = aten.embedding.default(%w, %i): f32[5, 4]
    out %e output 0
  }
  graph @b {
    in %i: i64[5] arg 0
    in %w: f32[3, 4] arg 1
    %s = aten.index_select.default(%w, 0, %i): f32[5, 4]
    out %s output 0
  }
}
`);
    allRight(graph, 'd=2', 20);
  });
});
