import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { stillPage } from '../../scripts/gallery.ts';
import { wholePlan } from '../../src/cli/input/plan-folder.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { incumbentsOf, ofOneProblem } from '../../src/report/analysis/incumbents.ts';
import { htmlPage } from '../../src/report/html/page.ts';
import type { Report } from '../../src/report/model/data.ts';
import { planModelInto } from '../cli/plan-folders.ts';
import { cli, fixture } from '../cli/support.ts';

/** What the sections of a report say, against the plan and against other commands. */
let root = '';
let folder = '';
let report: Report;
/** A plan of a few operators. */
let small = '';
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'shardwright-sections-'));
  // By formulas: the measured times of collectives as small as these do not change with the rate of
  // the links.
  const more = ['--inputs', 'S(0)R', '--cost', 'alpha-beta'];
  folder = await planModelInto(fixture('mlp-loss'), root, 'plan', ...more);
  small = await planModelInto(fixture('mlp-loss'), root, 'small', '--inputs', 'S(0)R');
  const run = await cli('report', folder, '--json', '--what-if');
  expect(run.code, run.err).toBe(0);
  report = JSON.parse(run.out) as Report;
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

const sum = (numbers: readonly number[]): number => numbers.reduce((n, x) => n + x, 0);

describe('11.1 time', () => {
  it('the groups of the roofline sum to the compute and the communication of the plan', () => {
    const { groups } = report.roofline!;
    const { computeSeconds, communicationSeconds } = report.plan.objective;
    expect(sum(groups.map((g) => g.computeSeconds)) / computeSeconds).toBeCloseTo(1, 9);
    expect(sum(groups.map((g) => g.communicationSeconds)) / communicationSeconds).toBeCloseTo(1, 9);
    for (const g of groups) {
      expect(g.matrixSeconds + g.memorySeconds + g.launchSeconds).toBeCloseTo(g.computeSeconds, 12);
      // No group is faster than either roof.
      expect(g.flops).toBeLessThanOrEqual(
        report.roofline!.flopsPerSecond * g.computeSeconds * (1 + 1e-9),
      );
    }
  });

  it('the timeline is that of simulate, and what overlaps is what its trace shows', async () => {
    const trace = join(root, 'trace.json');
    const run = await cli('simulate', folder, '--json', '--trace', trace);
    const said = JSON.parse(run.out) as Record<string, number>;
    const streams = report.streams!;
    expect(streams.seconds).toBe(said.seconds);
    expect(streams.exposedCommunicationSeconds).toBe(said.exposedCommunicationSeconds);
    expect(streams.mfu).toBe(said.mfu);
    for (const s of streams.streams)
      expect(Math.abs(sum(s.busy) / s.busy.length - s.busySeconds / streams.seconds)).toBeLessThan(
        1e-3,
      );
    // By brute force over all pairs of the trace, collectives over the same mesh dims together.
    const { traceEvents } = JSON.parse(readFileSync(trace, 'utf8')) as { traceEvents: Event[] };
    const work = traceEvents.filter((e) => e.ph === 'X');
    const kernels = work.filter((e) => e.cat === 'compute');
    const beside = new Map<string, number>();
    for (const c of work.filter((e) => e.cat === 'collective')) {
      const axes = c.args.axes.split('+').sort().join(',');
      const over = sum(
        kernels.map((k) =>
          Math.max(0, Math.min(k.ts + k.dur, c.ts + c.dur) - Math.max(k.ts, c.ts)),
        ),
      );
      beside.set(axes, (beside.get(axes) ?? 0) + over / 1e6);
    }
    expect(beside.size).toBeGreaterThan(0);
    for (const [axes, seconds] of beside) {
      const mine = streams.overlapped.filter((o) => o.axes === axes);
      expect(sum(mine.map((o) => o.overlappedSeconds))).toBeCloseTo(seconds, 9);
    }
    for (const c of report.collectives) expect(c.overlappedShare).not.toBeNull();
  });

  it('bytes sent follow the ring: (n-1)/n of the tensor, twice for an all_reduce', () => {
    const rings = report.collectives.filter((c) => c.kind !== 'collective_permute');
    expect(rings.length).toBeGreaterThan(0);
    for (const { kind, bytes, groupSize, sentBytes } of rings)
      expect(sentBytes).toBeCloseTo(
        ((kind === 'all_reduce' ? 2 : 1) * bytes * (groupSize - 1)) / groupSize,
        6,
      );
  });
});

describe('11.1 memory timeline', () => {
  it('the curve has the peak of the plan, and the largest tensors there', () => {
    const { memory, plan } = report;
    const timeline = plan.memory.timeline!;
    const most = memory!.points.reduce((a, b) => (sum(b) > sum(a) ? b : a));
    expect(sum(most)).toBe(timeline.peakBytes);
    expect(memory!.peakNode).toBe(timeline.node);
    const of = (kind: string): number =>
      most[memory!.kinds.indexOf(kind as NonNullable<typeof memory>['kinds'][number])];
    expect(of('optimizer')).toBe(timeline.byKind.optimizer);
    expect(of('activations') + of('copies in flight')).toBe(timeline.activationBytes);
    expect(memory!.largest.slice(0, 8).map((t) => t.bytes)).toEqual(
      timeline.largest.map((t) => t.bytes),
    );
    // A program of a few operators has six there; html.test.ts has one with more than ten.
    expect(memory!.largest).toHaveLength(6);
    for (const t of memory!.largest) {
      expect(t.from).toBeLessThanOrEqual(memory!.peakMoment);
      expect(t.to).toBeGreaterThanOrEqual(memory!.peakMoment);
    }
  });
});

describe('11.1 against the recipes', () => {
  it('in the report: no recipe that fits is faster than a proven optimum; the front falls strictly', () => {
    expect(report.plan.proof.status).toBe('optimal');
    const priced = report.zoo!.filter((r) => r.seconds !== null);
    expect(priced.length).toBeGreaterThan(3);
    for (const r of priced) {
      if (r.overBytes === undefined && r.name !== 'replicated')
        expect(r.computeSeconds! + r.communicationSeconds!).toBeCloseTo(r.seconds!, 9);
      expect(r.losses.every((l) => l.seconds > 0)).toBe(true);
    }
    const front = report.frontier!;
    front.slice(1).forEach((p, k) => {
      expect(p.peakBytes).toBeGreaterThan(front[k].peakBytes);
      expect(p.seconds).toBeLessThan(front[k].seconds);
    });
    for (const r of priced.filter((x) => x.dominatedBy !== undefined)) {
      const others = [
        ...priced.map((x) => ({ name: x.name, s: x.seconds!, b: x.peakBytes! })),
        { name: 'this plan', s: report.plan.objective.seconds, b: report.plan.memory.peakBytes },
      ];
      const by = others.find((x) => x.name === r.dominatedBy)!;
      expect(by.s).toBeLessThanOrEqual(r.seconds!);
      expect(by.b).toBeLessThanOrEqual(r.peakBytes!);
    }
  });

  it('the nearest change of a node costs what explain says', async () => {
    const near = report.nextBest!.find((n) => n.kind === 'one node')!;
    const run = await cli('explain', folder, near.name, '--json');
    const { strategies } = JSON.parse(run.out) as {
      strategies: { spec: string; localSeconds: number }[];
    };
    expect(strategies.find((s) => s.spec === near.spec)?.localSeconds).toBe(near.deltaSeconds);
  });

  it('slower links never gain, and cost at least twice what faster ones gain: the step is concave in time per byte', () => {
    const at = (what: string): number =>
      report.sensitivity!.find((s) => s.what === what)!.deltaSeconds;
    const twice = at('links inside a host twice as fast');
    const half = at('links inside a host half as fast');
    expect(twice).toBeLessThan(0);
    expect(half).toBeGreaterThan(0);
    // f(x/2) - f(x) and f(2x) - f(x) of a concave f: the second is at most twice the first in size.
    expect(half).toBeLessThanOrEqual(-2 * twice + 1e-12);
    expect(report.sensitivity!.some((s) => s.what.includes('between hosts'))).toBe(false);
  });

  it('--what-if: the best plan on other links is what planning for that cluster finds', async () => {
    const slow = report.sensitivity!.find((s) => s.what === 'links inside a host half as fast')!;
    const cluster = join(root, 'slow.json');
    writeFileSync(cluster, JSON.stringify({ base: 'dgx-h100', intra: { bytesPerSecond: 225e9 } }));
    const other = await planModelInto(
      fixture('mlp-loss'),
      root,
      'slow',
      '--inputs',
      'S(0)R',
      '--cost',
      'alpha-beta',
      '--cluster',
      cluster,
    );
    const plan = JSON.parse(readFileSync(join(other, 'plan.json'), 'utf8')) as Report['plan'];
    expect(slow.bestSeconds).toBe(plan.objective.seconds);
    expect(slow.bestSeconds!).toBeLessThanOrEqual(slow.seconds * (1 + 1e-6));
  });

  it('--what-if: without a budget nothing is slower, and the smallest budget is the one that plan names', async () => {
    const { unlimited, smallestBudgetBytes } = report.memoryBounds!;
    expect(unlimited!.seconds).toBeLessThanOrEqual(report.plan.objective.seconds * (1 + 1e-12));
    const run = await cli(
      'plan',
      join(folder, 'graph.swg'),
      '--mesh',
      'dp=2,tp=2',
      '--cluster',
      'dgx-h100',
      '--inputs',
      'S(0)R',
      '--no-recipes',
      '--memory',
      '1B',
      '--activations',
      'report',
      '--json',
    );
    expect(run.code).toBe(3);
    expect(run.out).toContain(String(smallestBudgetBytes));
    for (const s of report.priceOfMemory!) expect(s.deltaSeconds).toBeGreaterThan(0);
    // From the largest plan of the front down, by steps that are worth a price.
    const [widest, ...smaller] = report.frontier!.map((p) => p.peakBytes).sort((a, b) => b - a);
    expect(report.priceOfMemory![0].fromBytes).toBe(widest);
    for (const { fromBytes, toBytes } of report.priceOfMemory!) {
      expect(smaller).toContain(toBytes);
      expect(fromBytes - toBytes).toBeGreaterThanOrEqual(0.01 * widest);
    }
  });
});

describe('11.1 graph, solver, warnings', () => {
  it('boxes stand for nodes once, edges lead where the program reads, and every box has its strategies', () => {
    const { graph, explain, plan } = report;
    expect(sum(graph!.nodes.map((n) => n.count)) + graph!.leftOut).toBe(plan.nodes.length);
    expect(explain).toHaveLength(graph!.nodes.length);
    graph!.nodes.forEach((node, k) => {
      expect(explain![k].nearest[0].class).toBe('CHOSEN');
      expect(plan.nodes[node.node].outputs[0]).toBe(node.placement);
    });
    const moved = graph!.edges.filter((e) => e.change !== undefined);
    expect(moved.length).toBeGreaterThan(0);
    for (const e of moved) {
      const [from] = e.change!.split(' -> ');
      const reader = plan.nodes[graph!.nodes[e.to].node];
      expect(reader.redistributions.map((r) => r.from)).toContain(from);
    }
  });

  it('--what-if: incumbents fall and bounds rise to the proven plan; clock times stand in run alone', async () => {
    const steps = report.solverTrace!.incumbents!;
    const { objective, proof } = report.plan;
    expect(steps.at(-1)).toMatchObject({ seconds: objective.seconds, bound: proof.bound });
    expect(report.run.incumbentSeconds).toHaveLength(steps.length);
    steps.slice(1).forEach((step, k) => {
      expect(step.seconds!).toBeLessThanOrEqual(steps[k].seconds!);
      if (steps[k].bound !== null) expect(step.bound!).toBeGreaterThanOrEqual(steps[k].bound);
      expect(report.run.incumbentSeconds![k + 1]).toBeGreaterThanOrEqual(
        report.run.incumbentSeconds![k],
      );
    });
    const { plan, program } = wholePlan(folder);
    expect((await incumbentsOf(plan, program, builtinOperators()))?.steps).toEqual(steps);
  });

  it('plans of an easier problem are not incumbents of this one, their bound holds', () => {
    const event = (seconds: number | null, bound: number | null, at: number) => ({
      phase: 'x',
      seconds,
      bound,
      at,
    });
    // The first three are without the memory limit: 46 is below what is proven for the problem
    // itself.
    const { steps, seconds } = ofOneProblem([
      event(114, null, 1),
      event(46, null, 2),
      event(46, 45, 3),
      event(62, null, 4),
      event(62, null, 5),
      event(47, 44, 6),
      event(46.5, 46.5, 7),
    ]);
    expect(steps.map((s) => [s.seconds, s.bound])).toEqual([
      [null, 45],
      [62, 45],
      [47, 45],
      [46.5, 46.5],
    ]);
    expect(seconds).toEqual([3, 4, 6, 7]);
  });

  it('the drawing of the solver is the only part of the page with clock times', () => {
    const steps = [
      { phase: 'a', seconds: 3e-3, bound: null },
      { phase: 'b', seconds: 2e-3, bound: 1e-3 },
      { phase: 'c', seconds: 2e-3, bound: 2e-3 },
    ];
    const page = (seconds: number[]): string =>
      htmlPage(
        {
          ...report,
          solverTrace: { ...report.solverTrace!, incumbents: steps },
          run: { solveSeconds: null, incumbentSeconds: seconds },
        },
        undefined,
        { figures: [], left: [], style: '' },
      );
    const [a, b] = [page([0.1, 0.2, 0.9]), page([0.3, 0.7, 1.1])];
    expect(a).not.toBe(b);
    expect(stillPage(a)).toBe(stillPage(b));
    const [, stairs] = /class="bound"[^]*?<path d="(M[^"]*)" class="incumbent"/.exec(a)!;
    // From 3 ms down to 2 ms at 0.2 s, and there to the end.
    expect(stairs.match(/V/g)).toHaveLength(2);
  });

  it('the problem has a variable for each decision, and pins leave fewer values', () => {
    const { whole, asked } = report.solverTrace!;
    expect(asked.variables).toBe(whole.variables);
    expect(asked.values).toBeLessThan(whole.values);
  });

  it('a plan whose states fit and whose activations do not says so', async () => {
    const { memory } = wholePlan(small).plan;
    const states = memory.parameterBytes + memory.gradientBytes + memory.optimizerBytes;
    const budget = Math.round((states + memory.timeline!.peakBytes) / 2);
    const tight = await planModelInto(
      fixture('mlp-loss'),
      root,
      'tight',
      '--inputs',
      'S(0)R',
      '--memory',
      `${budget}B`,
      '--activations',
      'report',
    );
    const said = JSON.parse((await cli('report', tight, '--json', '--no-recipes')).out) as Report;
    expect(said.plan.memory.timeline!.peakBytes).toBeGreaterThan(budget);
    expect(said.warnings.join()).toContain('With activations the plan takes');
    expect(said.answer.find((a) => a.label === 'Memory')!.text).toContain('the states fit');
  });

  it('a plan file alone has the sections that need no graph, and names the others', async () => {
    const alone = join(root, 'alone.json');
    const { hashes: _, ...plan } = report.plan;
    writeFileSync(alone, JSON.stringify(plan));
    const run = await cli('report', alone, '--json');
    expect(run.code, run.err).toBe(0);
    const said = JSON.parse(run.out) as Report;
    expect([said.roofline, said.streams, said.zoo, said.graph]).toEqual([null, null, null, null]);
    expect(said.missing.join()).toContain('not next to the plan');
    expect(said.terms).toEqual(report.terms);
  });
});

describe('in part: text', () => {
  it('has every number of the answer, aligned tables, no escape sequence and no carriage return', async () => {
    const { out } = await cli('report', small, '--format', 'text', '--no-recipes');
    const said = JSON.parse((await cli('report', small, '--json', '--no-recipes')).out) as Report;
    for (const { text } of said.answer) expect(out).toContain(text);
    expect(out).not.toMatch(/[\u001b\r]/);
    for (const c of said.constants) expect(out).toContain(c.source);
  });
});

interface Event {
  readonly ph: string;
  readonly cat: string;
  readonly ts: number;
  readonly dur: number;
  readonly args: { readonly axes: string };
}
