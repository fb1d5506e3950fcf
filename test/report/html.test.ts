import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { readPlan } from '../../src/plan/record/schema.ts';
import type { Report } from '../../src/report/model/data.ts';
import { bytesText, secondsText } from '../../src/units.ts';
import { planInto, planModelInto } from '../cli/plan-folders.ts';
import { cli, fixture } from '../cli/support.ts';
import { checkHtml, textOf } from './html-reader.ts';

let root = '';
let html = '';
let csv = '';
let report: Report;
/** A plan of a few operators, for what is asked of it many times. */
let small: { folder: string; html: string; csv: string; report: Report };
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'shardwright-report-'));
  // Inputs cut over dp, so that gradients are reduced: left free, so small a model is best
  // replicated.
  const folder = await planInto(root, 'plan', '--inputs', 'S(0)R');
  html = await made(folder, 'html');
  csv = await made(folder, 'csv', '--no-recipes');
  report = heldBy(html);
  const few = await planModelInto(fixture('mlp-loss'), root, 'few', '--inputs', 'S(0)R');
  small = {
    folder: few,
    html: await made(few, 'html'),
    csv: await made(few, 'csv', '--no-recipes'),
    report: JSON.parse(await made(few, 'json')) as Report,
  };
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

async function made(folder: string, format: string, ...more: string[]): Promise<string> {
  const run = await cli('report', folder, '--format', format, ...more);
  expect(run.code, run.err).toBe(0);
  return run.out;
}

/** The JSON that a page holds. */
function heldBy(page: string): Report {
  const [, block = ''] =
    /<script type="application\/json" id="shardwright-report">([^]*?)<\/script>/.exec(page)!;
  expect(block).not.toContain('<');
  return JSON.parse(block) as Report;
}

describe('the report of a 2-layer Llama plan', () => {
  it('is well-formed, with every tag closed and every id once', () => {
    expect(checkHtml(html)).toEqual([]);
  });

  it('refers to nothing outside itself, and forbids it', () => {
    expect(html.includes('default-src &#39;none&#39;')).toBe(true);
    const markup = html.replace(/<script type="application\/json"[^]*?<\/script>/, '');
    for (const [, value] of markup.matchAll(/(?:src|href|action|data|poster|srcset)="([^"]*)"/g))
      expect(value).toMatch(/^#/);
    expect(markup).not.toMatch(
      /@import|\bfetch\(|XMLHttpRequest|import\(|url\((?!#)|<link|<iframe|<img|<object|<base/,
    );
  });

  it('holds the same JSON as --format json', () => {
    expect(heldBy(small.html)).toEqual(small.report);
  });

  it('ranks recipes by the step that plan --recipe finds for them', async () => {
    const asked = [fixture('mlp-loss'), '--mesh', 'dp=2', '--cluster', 'dgx-h100'];
    const [out, own] = [join(root, 'optimum'), join(root, 'fsdp')];
    expect((await cli('plan', ...asked, '-o', out)).code).toBe(0);
    expect((await cli('plan', ...asked, '--recipe', 'fsdp', '-o', own)).code).toBe(0);
    const { plan, zoo, answer } = JSON.parse((await cli('report', out, '--json')).out) as Report;
    const steps = (zoo ?? []).flatMap(({ name, stepSeconds, overBytes }) =>
      stepSeconds === null || overBytes !== undefined ? [] : [{ name, stepSeconds }],
    );
    expect(steps.length).toBeGreaterThan(2);
    const { step } = readPlan(readFileSync(join(own, 'plan.json'), 'utf8'));
    const found = steps.find(({ name }) => name === 'FSDP (dp)');
    expect(found?.stepSeconds).toBe(step?.stepSeconds);
    // The plan is the fastest, up to the half percent that keeps the proven one.
    const [best] = steps.sort((x, y) => x.stepSeconds - y.stepSeconds);
    expect(best?.stepSeconds).toBeGreaterThan((plan.step?.stepSeconds ?? NaN) * 0.995);
    const against = answer.find(({ label }) => label === 'Against')?.text ?? '';
    expect(against).toContain(`best recipe ${best?.name} ${secondsText(best?.stepSeconds ?? 0)} (`);
  });

  it('says the same answer in HTML, Markdown and JSON, from the numbers of the plan', async () => {
    const { folder, report } = small;
    const page = textOf(small.html);
    const markdown = (await made(folder, 'md')).replace(/\\([\\`*_{}[\]|#~!])/g, '$1');
    expect(report.answer).toHaveLength(8);
    for (const { label, text } of report.answer) {
      // What to do is the end of the decision.
      const isDecided = label === 'What to do';
      expect(page).toContain(isDecided ? `; ${text}Step` : `${label}${text}`);
      expect(markdown).toContain(isDecided ? `; ${text}` : `- **${label}**: ${text}`);
    }
    const plan = readPlan(readFileSync(join(folder, 'plan.json'), 'utf8'));
    const said = report.answer.map((a) => a.text).join('\n');
    for (const s of [
      plan.objective.seconds,
      plan.objective.computeSeconds,
      plan.objective.communicationSeconds,
    ])
      expect(said).toContain(secondsText(s));
    expect(said).toContain(
      `${bytesText(plan.memory.peakBytes)} of ${bytesText(plan.memory.budgetBytes)}`,
    );
    expect(said).toContain('optimal');
    expect(said).toMatch(/best recipe .* \([+-]/);
  });

  it('reads without scripts: placements, collectives, proof, sources and the command are text', () => {
    const page = textOf(html.replace(/<script[^]*?<\/script>/g, ''));
    for (const p of report.parameters) {
      expect(page).toContain(p.count > 1 ? `${p.name} ×${p.count}` : p.name);
      expect(page).toContain(`[${p.shape.join(', ')}]`);
    }
    for (const c of report.collectives) expect(page).toContain(c.kind);
    expect(report.collectives.length).toBeGreaterThan(0);
    for (const c of report.constants) expect(page).toContain(c.source);
    for (const a of report.assumptions) expect(page).toContain(a);
    expect(page).toContain(report.command);
    for (const node of report.plan.nodes)
      if (node.target === 'aten.mm.default') expect(page).toContain(node.outputs[0]);
  });

  it('groups equal layers, and lists the ten largest tensors of the peak', () => {
    const { roofline, memory } = report;
    expect(roofline!.groups.some((g) => g.name.endsWith('layers.*.mlp.down_proj'))).toBe(true);
    expect(memory!.largest).toHaveLength(10);
  });

  it('joins notes by dots only where there are two of them', () => {
    const texts = [...html.replace(/<script[^]*?<\/script>/g, '').matchAll(/>([^<>]+)</g)];
    const notes = texts.map(([, text]) => text.trim()).filter((text) => text.includes('·'));
    expect(notes.some((note) => /^\d[^·]* · /.test(note))).toBe(true);
    expect(notes.filter((note) => /^·|·$|· *·/.test(note))).toEqual([]);
  });

  it('has light and dark, a switch, a print style, drawings with titles, and headings in order', () => {
    expect(html).toContain('@media (prefers-color-scheme:dark)');
    expect(html).toContain('data-theme=dark');
    expect(html).toContain('@media print');
    expect(html).toMatch(/<button type="button" class="theme" hidden>/);
    expect([...html.matchAll(/<svg[^>]*role="img" aria-labelledby="/g)].length).toBeGreaterThan(0);
    const levels = [...html.matchAll(/<h([1-6])[ >]/g)].map((m) => Number(m[1]));
    levels.forEach((level, i) => expect(level).toBeLessThanOrEqual((levels[i - 1] ?? 0) + 1));
  });

  it('every text has a contrast of at least 4.5:1 in both themes', () => {
    const themes = [
      ...html.matchAll(
        /--page:(#\w+);--ink:(#\w+);--soft:(#\w+)[^}]*?--raised:(#\w+);--accent:(#\w+)[^}]*?--communication:(#\w+)/g,
      ),
    ];
    expect(new Set(themes.map((t) => t[1])).size).toBe(2);
    for (const [, page, ink, soft, raised, accent] of themes)
      for (const ground of [page, raised])
        for (const text of [ink, soft, accent])
          expect(contrast(text, ground)).toBeGreaterThanOrEqual(4.5);
    const inPrograms = themes.map(([, , , , raised, , communication]) =>
      contrast(communication, raised),
    );
    for (const ratio of inPrograms) expect(ratio).toBeGreaterThanOrEqual(4.5);
  });

  it('shows a node named as markup as text', async () => {
    const evil = '</script><b>x';
    const [first] = small.report.plan.parameters;
    const program = readFileSync(join(small.folder, 'graph.swg'), 'utf8')
      .replaceAll(JSON.stringify(first.name), JSON.stringify(evil))
      .replace(/^graph @.*$/m, (line) =>
        line.replace(/@\S+/, `@${JSON.stringify(`<img src=x onerror=alert(1)> "'&`)}`),
      )
      .replace(/^( *)(note|in) /m, '$1note "<i>note</i> \\u202e"\n$1$2 ');
    const model = join(root, 'evil.swg');
    writeFileSync(model, program);
    const bad = await planModelInto(model, root, 'evil', '--inputs', 'S(0)R');
    const run = await cli('report', bad, '--no-recipes', '--draw', evil);
    expect(run.code, run.err).toBe(0);
    expect(checkHtml(run.out)).toEqual([]);
    expect(run.out).not.toContain('<b>x');
    expect(run.out).not.toContain('<img');
    expect(run.out).not.toContain('<i>note');
    expect(run.out).not.toContain('\u202e<');
    expect(textOf(run.out.replace(/<script[^]*?<\/script>/g, ''))).toContain(evil);
    const markdown = await cli('report', bad, '--no-recipes', '--format', 'md');
    expect(markdown.out).not.toMatch(/<(?!\/?$)/);
  });
});

describe('one folder', () => {
  it('two runs give the same bytes, in every format', async () => {
    // Markdown and text print the blocks of the page, so that the page stands for them; that the
    // JSON of another run is that of the page is said above.
    expect(await made(small.folder, 'html')).toBe(small.html);
    expect(await made(small.folder, 'csv', '--no-recipes')).toBe(small.csv);
    // The clock times of the folder's own progress.json.
    expect(report.run).toEqual({
      solveSeconds: null,
      incumbentSeconds: expect.any(Array) as unknown,
    });
  });

  it('the objective is recomputed from the JSON alone', () => {
    const { plan, terms } = report;
    let seconds = 0;
    for (const node of plan.nodes) {
      seconds += node.seconds + (node.internalSeconds ?? 0);
      for (const r of node.redistributions) seconds += r.seconds;
    }
    for (const output of plan.outputs) for (const r of output.redistributions) seconds += r.seconds;
    expect(secondsText(seconds)).toBe(secondsText(plan.objective.seconds));
    expect(
      Math.abs(terms.reduce((n, t) => n + t.seconds, 0) - plan.objective.seconds),
    ).toBeLessThan(1e-12);
  });

  it('the command makes the same plan again', async () => {
    const { folder, report } = small;
    // Read by a shell, as a person would paste it.
    const words = execFileSync('sh', ['-c', `printf '%s\\n' ${report.command}`], {
      encoding: 'utf8',
    })
      .trimEnd()
      .split('\n');
    expect(words.slice(0, 3)).toEqual(['shardwright', 'plan', 'graph.swg']);
    const again = join(root, 'again');
    const run = await cli(
      'plan',
      '-v',
      join(folder, 'graph.swg'),
      ...words.slice(3),
      '--no-recipes',
      '-o',
      again,
    );
    expect(run.code, run.err).toBe(0);
    const [a, b] = [folder, again].map((f) => readPlan(readFileSync(join(f, 'plan.json'), 'utf8')));
    expect(b.objective).toEqual(a.objective);
    expect(b.parameters).toEqual(a.parameters);
  });
});

describe('CSV', () => {
  it('has a row for each parameter, node and result, and its seconds sum to the step', () => {
    const [head, ...rows] = csv.trimEnd().split('\r\n').map(cells);
    expect(rows.every((row) => row.length === head.length)).toBe(true);
    const { plan } = report;
    expect(rows).toHaveLength(plan.parameters.length + plan.nodes.length + plan.outputs.length);
    const column = (name: string): number[] => rows.map((row) => Number(row[head.indexOf(name)]));
    const sum = ['compute_seconds', 'internal_seconds', 'redistribution_seconds']
      .flatMap(column)
      .reduce((n, s) => n + s, 0);
    expect(Math.abs(sum / plan.objective.seconds - 1)).toBeLessThan(1e-9);
  });
});

describe('wrong input exits with 2', () => {
  it.each<[string[], string]>([
    [['--format', 'pdf'], 'html, md, text, json, csv'],
    [['--json', '--format', 'md'], 'two formats'],
    [['--draw', 'nothing'], "no parameter 'nothing'"],
    [['-o', '/no/such/folder/r.html', '--no-recipes'], 'folder that exists'],
  ])('%j', async (flags, what) => {
    const run = await cli('report', small.folder, ...flags);
    expect(run.code, run.err).toBe(2);
    expect(run.err + run.out).toContain(what);
  });

  it('a plan file that is none', async () => {
    const path = join(root, 'broken.json');
    writeFileSync(path, '{"version": 1, "model": 3}');
    const run = await cli('report', path);
    expect(run.code).toBe(2);
    expect(run.err).toContain('$.model');
  });
});

/** Fields of one line of CSV without line breaks in fields. */
function cells(line: string): string[] {
  return [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^",]*))/g)].map((m) => m[1] ?? m[2]);
}

/** WCAG 2.2 contrast ratio of two `#rrggbb`. */
function contrast(a: string, b: string): number {
  const luminance = (hex: string): number => {
    const [r, g, blue] = [1, 3, 5].map((i) => {
      const c = parseInt(hex.slice(i, i + 2), 16) / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * blue;
  };
  const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (light + 0.05) / (dark + 0.05);
}
