import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { jointGraph } from '../../src/entries/graph.ts';
import { parseCsv } from '../../src/fidelity/csv.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import { parameter, trace } from '../../src/index.ts';
import { cli } from '../cli/support.ts';
import { HOSTILE_LINE, hostileGraph, MARK } from '../support/hostile-names.ts';
import { checkHtml, textOf } from './html-reader.ts';

/** Ends a word of a shell, and is a name that a file may have. */
const FILE = `evil'"; touch ${MARK} #$(touch ${MARK})\`touch ${MARK}\`\n"""${MARK}""" .swg`;

let root = '';
let folder = '';
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'shardwright-hostile-'));
  const graph = jointGraph(
    trace(({ x, w }) => x.matmul(w).sin().sum(), {
      x: parameter([8, 8], 'f32'),
      w: parameter([8, 8], 'f32'),
    }),
  );
  const model = join(root, FILE);
  writeFileSync(model, printGraph(hostileGraph(graph)));
  const cluster = join(root, 'cluster.json');
  writeFileSync(
    cluster,
    JSON.stringify({ base: 'dgx-h100', id: HOSTILE_LINE, name: HOSTILE_LINE }),
  );
  folder = join(root, 'plan');
  const run = await cli('plan', '-v', model, '--mesh', 'dp=2', '--cluster', cluster, '-o', folder);
  expect(run.code, run.err).toBe(0);
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

async function report(format: string): Promise<string> {
  const run = await cli('report', folder, '--no-recipes', '--format', format);
  expect(run.code, run.err).toBe(0);
  expect(run.out).toContain(MARK);
  return run.out;
}

describe('names that try to end an element, a cell, a line or a word', () => {
  it('are text of the page: its two scripts are its own', async () => {
    const html = await report('html');
    expect(checkHtml(html)).toEqual([]);
    const scripts = [...html.matchAll(/<script[^>]*>([^]*?)<\/script>/g)].map(([, text]) => text);
    expect(scripts).toHaveLength(2);
    expect(scripts[1]).not.toContain(MARK);
    const markup = html.replace(/<script[^]*?<\/script>/g, '');
    expect(markup).not.toMatch(/<img|onerror=PWNED>|<!--/);
    expect(textOf(markup)).toContain('</script><script>PWNED</script>');
    expect(JSON.stringify(JSON.parse(scripts[0]))).toContain('</script><script>PWNED</script>');
  });

  it('are text of Markdown: no HTML, no emphasis, no line of their own', async () => {
    const markdown = await report('md');
    expect(markdown).not.toMatch(/^ {0,3}__import__/m);
    for (const line of markdown.split('\n'))
      if (!line.startsWith('    ')) expect(line).not.toMatch(/<|(?<!\\)__import__/);
  });

  it('are cells of CSV, and none is a formula', async () => {
    const { rows } = parseCsv(await report('csv'), ['kind', 'name']);
    const words = new Set(rows.map(({ cells }) => cells.get('kind')));
    expect(words).toEqual(new Set(['parameter', 'node', 'output', 'grad']));
    for (const { cells } of rows)
      for (const cell of cells.values()) expect(cell).not.toMatch(/^[=+@\t\r]/);
  });

  it('are values of JSON and of the trace of a simulated step', async () => {
    expect(JSON.stringify(JSON.parse(await report('json')))).toContain(MARK);
    const trace = join(root, 'trace.json');
    const run = await cli('simulate', folder, '--trace', trace);
    expect(run.code, run.err).toBe(0);
    expect(JSON.stringify(JSON.parse(readFileSync(trace, 'utf8')))).toContain(MARK);
  });

  it('are not lines of their own on a terminal', async () => {
    const [first] = (
      JSON.parse(readFileSync(join(folder, 'plan.json'), 'utf8')) as {
        nodes: { name: string }[];
      }
    ).nodes;
    const runs = [
      await cli('report', folder, '--no-recipes', '--format', 'text'),
      await cli('simulate', folder),
      await cli('explain', folder, first.name),
      await cli('inspect', join(folder, 'graph.swg')),
      await cli('diff', folder, folder),
      await cli('check-plan', folder),
      await cli('plan', '-v', join(root, FILE), '--mesh', 'dp=2', '--cluster', 'dgx-h100'),
    ];
    for (const { code, out, err } of runs) {
      expect(code, err).toBe(0);
      expect(out + err).not.toMatch(/^\s*(\\u000d)?(__import__|""")/m);
      expect(out + err).not.toMatch(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]/);
    }
  });
});
