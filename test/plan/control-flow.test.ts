import { describe, expect, it } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import type { Graph } from '../../src/graph/types.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { load, placed, planFor, request, TABLE } from './support.ts';

const B = 1024;
const D = 4096;

/** h' = tanh(x_t Wx + h Wh) over `length` steps; the outputs are the last h and all of them. */
function scanned(length: number): Graph {
  return parseGraph(`swgraph 1
graph @rnn {
  in %wx: f32[${D}, ${D}] parameter "wx"
  in %wh: f32[${D}, ${D}] parameter "wh"
  in %xs: f32[${length}, ${B}, ${D}] input "xs"
  in %h0: f32[${B}, ${D}] input "h0"
  %scan = scan(@step, [%h0], [%xs], [%wx, %wh]): (f32[${B}, ${D}], f32[${length}, ${B}, ${D}]) ; forward
  %h = operator.getitem(%scan, 0): f32[${B}, ${D}] ; forward
  %ys = operator.getitem(%scan, 1): f32[${length}, ${B}, ${D}] ; forward
  out %h output 0
  out %ys output 1
  graph @step {
    in %h: f32[${B}, ${D}] arg 0
    in %x: f32[${B}, ${D}] arg 1
    in %wx: f32[${D}, ${D}] arg 2
    in %wh: f32[${D}, ${D}] arg 3
    %a = aten.mm.default(%x, %wx): f32[${B}, ${D}] ; forward
    %b = aten.mm.default(%h, %wh): f32[${B}, ${D}] ; forward
    %sum = aten.add.Tensor(%a, %b): f32[${B}, ${D}] ; forward
    %next = aten.tanh.default(%sum): f32[${B}, ${D}] ; forward
    out %next output 0
    out %next output 1
  }
}
`);
}

/** The same program written out. */
function unrolled(length: number): Graph {
  const lines: string[] = [];
  let h = 'h0';
  for (let t = 0; t < length; t++) {
    lines.push(
      `%x${t} = aten.select.int(%xs, 0, ${t}): f32[${B}, ${D}] ; forward`,
      `%a${t} = aten.mm.default(%x${t}, %wx): f32[${B}, ${D}] ; forward`,
      `%b${t} = aten.mm.default(%${h}, %wh): f32[${B}, ${D}] ; forward`,
      `%sum${t} = aten.add.Tensor(%a${t}, %b${t}): f32[${B}, ${D}] ; forward`,
      `%next${t} = aten.tanh.default(%sum${t}): f32[${B}, ${D}] ; forward`,
    );
    h = `next${t}`;
  }
  const all = Array.from({ length }, (_, t) => `%next${t}`).join(', ');
  return parseGraph(`swgraph 1
graph @rnn {
  in %wx: f32[${D}, ${D}] parameter "wx"
  in %wh: f32[${D}, ${D}] parameter "wh"
  in %xs: f32[${length}, ${B}, ${D}] input "xs"
  in %h0: f32[${B}, ${D}] input "h0"
  ${lines.join('\n  ')}
  %ys = aten.stack.default([${all}], 0): f32[${length}, ${B}, ${D}] ; forward
  out %${h} output 0
  out %ys output 1
}
`);
}

const node = (plan: Plan, name: string): Plan['nodes'][number] => {
  const found = plan.nodes.find((n) => n.name === name);
  if (found === undefined) throw new Error(`no node ${name}`);
  return found;
};

describe('a scan is planned like its unrolled twin', () => {
  // The twin pays for copying the stacked result, which the scan writes in place; and it may place
  // its first and last steps otherwise, which one carry for all trips cannot.
  const gapOf = (loop: Plan, twin: Plan): number =>
    loop.objective.seconds / (twin.objective.seconds - node(twin, 'ys').seconds) - 1;

  it('same layout of the weights and of each step on x=8', async () => {
    const loop = await planFor(scanned(6), 'x=8');
    const twin = await planFor(unrolled(6), 'x=8');
    expect(loop.proof.status).toBe('optimal');
    for (const name of ['wx', 'wh']) expect(placed(loop, name)).toBe(placed(twin, name));
    for (const name of ['a', 'b', 'sum', 'next'])
      expect(node(loop, `scan.${name}`).outputs, name).toEqual(node(twin, `${name}3`).outputs);
    expect(gapOf(loop, twin)).toBeGreaterThan(-1e-9);
    expect(gapOf(loop, twin)).toBeLessThan(2e-3);
    expect(node(loop, 'scan.a').times).toBe(6);
  });

  it('as cheap on x=2,y=4, up to the ends', async () => {
    const [loop, twin] = [
      await planFor(scanned(6), 'x=2,y=4'),
      await planFor(unrolled(6), 'x=2,y=4'),
    ];
    expect(gapOf(loop, twin)).toBeGreaterThan(-1e-9);
    expect(gapOf(loop, twin)).toBeLessThan(0.05);
  });

  it('the problem does not grow with the trips, and the time of the body does', async () => {
    const [few, many] = [4, 400].map((n) => prepare(scanned(n), request('x=4'), TABLE));
    expect(many.left.problem.domains.length).toBe(few.left.problem.domains.length);
    const [a, b] = [await planFor(scanned(4), 'x=4'), await planFor(scanned(400), 'x=4')];
    expect(b.objective.computeSeconds / a.objective.computeSeconds).toBeCloseTo(100, 6);
  });
});

describe('what a loop does not change is moved once, what it changes in every trip', () => {
  it('a weight that is stored cut is gathered before the loop', async () => {
    const pins = [
      { node: 'wh', spec: 'S(0)' },
      { node: 'scan.b', spec: 'S(0)' },
    ];
    const plan = await planFor(scanned(50), 'x=4', { pins });
    const [gather] = node(plan, 'scan.b').redistributions.filter((r) => r.input === 1);
    expect(gather.collectives.map((c) => c.kind)).toEqual(['all_gather']);
    expect(gather.times).toBeUndefined();
  });

  it('a carry has one placement at entry, in the body and at exit: leaving it costs every trip', async () => {
    const turning = parseGraph(`swgraph 1
graph @turning {
  in %w: f32[${D}, ${D}] parameter "w"
  in %h0: f32[${D}, ${D}] input "h0"
  %scan = scan(@step, [%h0], [], [%w], length=9): (f32[${D}, ${D}]) ; forward
  %h = operator.getitem(%scan, 0): f32[${D}, ${D}] ; forward
  out %h output 0
  graph @step {
    in %h: f32[${D}, ${D}] arg 0
    in %w: f32[${D}, ${D}] arg 1
    %p = aten.mm.default(%h, %w): f32[${D}, ${D}] ; forward
    %t = aten.t.default(%p): f32[${D}, ${D}] ; forward
    out %t output 0
  }
}
`);
    const pins = [
      { node: 'scan.carry.0', spec: 'S(0)' },
      { node: 'scan.p', spec: 'S(0)' },
    ];
    const plan = await planFor(turning, 'x=4', { pins });
    const [carry] = plan.outputs.filter((o) => o.role === 'carry');
    expect(carry).toMatchObject({ value: 'scan.t', of: 'scan.carry.0', placement: 'S(0)' });
    expect(carry.redistributions.map((r) => [r.from, r.to, r.times])).toEqual([
      ['S(1)', 'S(0)', 9],
    ]);
    const each = carry.redistributions[0].seconds;
    expect(plan.objective.communicationSeconds).toBeGreaterThanOrEqual(9 * each);
  });

  it('a scanned dim is not cut inside: a cut of it is undone before the loop', async () => {
    const pins = [{ node: 'xs', spec: 'S(0)' }];
    const plan = await planFor(scanned(8), 'x=4', { pins });
    const slice = node(plan, 'scan.x.0');
    expect(slice.inputs[0]).not.toContain('S(0)');
    expect(slice.redistributions.map((r) => [r.from, r.times])).toEqual([['S(0)', undefined]]);
  });
});

describe('branches', () => {
  it('end in equal placements under a replicated predicate', async () => {
    const plan = await planFor(load('torch/hop-cond/export.readable'), 'x=2');
    const [meet] = plan.nodes.filter((n) => n.target === 'aten.where.self');
    expect(meet.inputs[0]).toBe('R');
    expect(meet.inputs[1]).toBe(meet.inputs[2]);
    expect(meet.times).toBe(0);
    const flops = plan.nodes
      .filter((n) => n.name.startsWith('cond.') && n.times !== undefined)
      .map((n) => n.times);
    expect(new Set(flops)).toEqual(new Set([0, 0.001]));
    expect(plan.assumptions.join()).toContain('the one with the most FLOPs counts whole');
  });

  it.each(['hop-cond-joint', 'hop-map-joint', 'hop-scan-joint'])(
    '%s, forward and backward, re-costed',
    async (name) => {
      const plan = await planFor(load(`torch/${name}/joint.expanded`), 'x=2,y=2');
      expect(plan.proof.status).toBe('optimal');
      expect(plan.proof.recheckedSeconds).toBeCloseTo(plan.objective.seconds, 9);
    },
  );
});
