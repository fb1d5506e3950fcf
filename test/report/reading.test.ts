import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import type { Node } from '../../src/graph/types.ts';
import { priceSteps } from '../../src/report/analysis/alternatives/what-if.ts';
import { paretoFigure } from '../../src/report/figures/pareto.ts';
import { render } from '../../src/report/markup.ts';
import type { Report } from '../../src/report/model/data.ts';
import { cli, fixture } from '../cli/support.ts';

/**
 * What a reader takes from a report is so: words, labels and drawings, on a tiny model, a real one,
 * and published figures.
 */

let root = '';
const reports = new Map<
  string,
  { readonly report: Report; readonly nodes: ReadonlyMap<string, Node>; readonly html: string }
>();
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'shardwright-reading-'));
  for (const [model, mesh] of [
    ['mlp', 'dp=2,tp=4'],
    ['gpt2-2l', 'dp=4,tp=2'],
  ]) {
    const folder = join(root, model);
    const plan = await cli(
      'plan',
      '-v',
      fixture(model),
      '--mesh',
      mesh,
      '--cluster',
      'dgx-h100',
      '--cost',
      'alpha-beta',
      '--no-recipes',
      '-o',
      folder,
    );
    expect(plan.code, plan.err).toBe(0);
    const graph = parseGraph(readFileSync(join(folder, 'graph.swg'), 'utf8'));
    const html = (await cli('report', folder, '--no-recipes')).out;
    // The page holds what --json prints (html.test.ts).
    const [, block = ''] = /<script type="application\/json"[^>]*>([^]*?)<\/script>/.exec(html)!;
    const report = JSON.parse(block) as Report;
    reports.set(model, { report, html, nodes: new Map(graph.nodes.map((n) => [n.name, n])) });
  }
}, 240_000);
afterAll(() => rmSync(root, { recursive: true, force: true }));

const answered = (model: string, label: string): string =>
  reports.get(model)!.report.answer.find((a) => a.label === label)!.text;
/** Seconds of a text such as `1.35 ms`. */
function secondsOf(text: string): number {
  const [amount, unit] = text.split(' ');
  return Number(amount) * { s: 1, ms: 1e-3, µs: 1e-6, ns: 1e-9 }[unit]!;
}

describe('the answer', () => {
  it('names what the step waits for, kernel by kernel: a tiny model waits for the start of kernels, not for compute', () => {
    const { report } = reports.get('mlp')!;
    expect(report.streams!.mfu).toBeLessThan(0.01);
    expect(answered('mlp', 'One after another')).toMatch(
      /bound by the start of kernels \([\d.]+ % of the step\)/,
    );
    for (const { report: r } of reports.values()) {
      const sums = {
        compute: 0,
        'memory bandwidth': 0,
        'the start of kernels': 0,
        communication: r.plan.objective.communicationSeconds,
      };
      for (const g of r.roofline!.groups) {
        sums.compute += g.matrixSeconds;
        sums['memory bandwidth'] += g.memorySeconds;
        sums['the start of kernels'] += g.launchSeconds;
      }
      const [[most]] = Object.entries(sums).sort(([, a], [, b]) => b - a);
      expect(r.answer.find((a) => a.label === 'One after another')!.text).toContain(
        `bound by ${most} (`,
      );
    }
  });

  it.each(['mlp', 'gpt2-2l'])('%s: with overlap is not longer than one after another', (model) => {
    const [, serial] = /kernel starts ([\d.]+ \S+)/.exec(answered(model, 'One after another'))!;
    const [, overlapped] = /^([\d.]+ \S+) simulated/.exec(answered(model, 'Step time'))!;
    expect(secondsOf(overlapped)).toBeLessThanOrEqual(secondsOf(serial));
  });

  it('the Python for DTensor says that it is of the parameters alone', () => {
    const { html } = reports.get('gpt2-2l')!;
    expect(html).toContain('Parameters only: DTensor replicates the inputs');
    expect(html).not.toContain('The same for PyTorch DTensor');
  });
});

describe('the drawing of the program', () => {
  const VIEW =
    /^aten\.(view|_unsafe_view|reshape|t|transpose|permute|expand|unsqueeze|squeeze|select|slice|split|detach|alias|unbind|chunk)\b|getitem/;

  it('has a change of placement on the edge of the value that changes', () => {
    const { report, nodes } = reports.get('gpt2-2l')!;
    const { graph, plan } = report;
    const outputs = new Map(plan.nodes.map((n) => [n.name, n.outputs]));
    const argsOf = (name: string): string[] =>
      [
        ...JSON.stringify([nodes.get(name)!.args, nodes.get(name)!.kwargs]).matchAll(
          /"kind":"value","name":"([^"]+)"/g,
        ),
      ].map(([, arg]) => arg);
    // A view that moves what it views may be drawn itself.
    const drawn = new Set(graph!.nodes.map(({ node }) => plan.nodes[node].name));
    const makersOf = (name: string): string[] =>
      VIEW.test(nodes.get(name)!.target)
        ? [...(drawn.has(name) ? [name] : []), ...makersOf(argsOf(name)[0])]
        : [name];
    const changes = graph!.edges.filter((e) => e.change !== undefined);
    expect(changes.length).toBeGreaterThan(10);
    for (const { from, to, change } of changes) {
      const [source, reader] = [
        plan.nodes[graph!.nodes[from].node],
        plan.nodes[graph!.nodes[to].node],
      ];
      const [was] = change!.split(' -> ');
      // Equal layers are drawn once: the maker is of the same operator, and the first of them may
      // read another than the rest.
      const likes = plan.nodes.filter(
        ({ target, redistributions: [move] }) => target === reader.target && move?.from === was,
      );
      const makers = likes.flatMap(({ name }) =>
        argsOf(name)
          .filter((arg) => outputs.get(arg)!.includes(was))
          .flatMap(makersOf),
      );
      expect(
        makers.map((name) => nodes.get(name)!.target),
        `${source.name} to ${reader.name}: ${change}`,
      ).toContain(nodes.get(source.name)!.target);
    }
  });
});

describe('plans beside each other', () => {
  const MIB = 2 ** 20;

  it('a few bytes less are not a step of the price of memory', () => {
    const front = [
      { name: 'a', seconds: 0.0587, peakBytes: 355 * MIB + 8192 },
      { name: 'b', seconds: 0.06, peakBytes: 355 * MIB },
      { name: 'c', seconds: 0.0534, peakBytes: 2836 * MIB },
      { name: 'd', seconds: 0.0424, peakBytes: 7782 * MIB },
    ];
    expect(priceSteps(front as never)).toEqual([
      {
        fromBytes: 7782 * MIB,
        toBytes: 2836 * MIB,
        deltaSeconds: expect.closeTo(0.011, 9) as number,
      },
      {
        fromBytes: 2836 * MIB,
        toBytes: 355 * MIB + 8192,
        deltaSeconds: expect.closeTo(0.0053, 9) as number,
      },
    ]);
  });

  it('one slow plan and a far budget do not press the others into a corner', () => {
    // The plans of README.md: step time in ms, states in MiB.
    const points = [
      [42.4, 7782],
      [1690, 22733],
      [238, 2836],
      [53.4, 2836],
      [58.7, 355],
      [53.2, 22733],
      [60, 355],
      [53.1, 22733],
      [59.9, 355],
    ].map(([ms, mib], k) => ({
      name: `p${k}`,
      seconds: ms / 1e3,
      bytes: mib * MIB,
      fits: true,
      chosen: k === 0,
      front: k === 0,
    }));
    const text = render(
      paretoFigure(points, 70.5 * 2 ** 30, ['states per device', 'costs one after another']),
    );
    const dots = [...text.matchAll(/<circle cx="([\d.]+)" cy="([\d.]+)"/g)].map(([, x, y]) => ({
      x: Number(x),
      y: Number(y),
    }));
    expect(dots).toHaveLength(points.length);
    const span = (of: readonly number[]): number => Math.max(...of) - Math.min(...of);
    expect(span(dots.map((d) => d.x))).toBeGreaterThan(0.5 * 640);
    const near = dots.filter((_, k) => points[k].seconds < 3 * 0.0424);
    expect(near).toHaveLength(7);
    expect(span(near.map((d) => d.y))).toBeGreaterThan(0.5 * 296);
    // Slower plans are faster than none: above the others, and the drawing says so.
    for (const k of [1, 2]) expect(dots[k].y).toBeLessThan(Math.min(...near.map((d) => d.y)));
    expect(text).toContain('at this edge: slower than 60.0 ms');
  });

  it('tables have what is sought beside its name, and show that they go on', () => {
    const { html } = reports.get('gpt2-2l')!;
    expect(html).toMatch(
      /<th scope="col" class="name">Parameter<\/th><th scope="col" class="keep">Placement/,
    );
    expect(html).toMatch(/\.scroll \{[^}]*background-attachment: local, local, scroll, scroll/);
  });
});
