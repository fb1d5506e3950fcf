import { describe, expect, test } from 'vitest';
import { ShardwrightError } from '../../src/errors.ts';
import { lintGraph } from '../../src/graph/lint.ts';
import { parseGraph } from '../../src/graph/parse.ts';
import { printGraph } from '../../src/graph/text.ts';
import type { Format } from '../../src/import/formats.ts';
import { importGraph } from '../../src/import/import.ts';
import { random } from '../ops/support/arrays.ts';
import { bounded, casesOf } from './bounds.ts';
import { infer, jaxText } from './support-jax.ts';
import { genericText } from './support-generic.ts';

/**
 * FM-56: damaged text gives a graph that passes every check, or an error with code, line and column. Bits flipped, text
 * cut, pieces doubled, moved and nested, numbers made huge, names made hostile. The seed of a case is in its message.
 */
const CASES = casesOf(300);

const HOSTILE = [
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  '%0',
  '@main',
  'dense',
  '"',
  '\\',
  '\u0000',
  '→',
  '{',
  '}',
  '<',
  '>',
  '[',
  '((((',
  '-> ',
  '#loc',
  'in (',
  'let ',
  ';',
  '99999999999999999999999',
  '-1',
  '0x',
  '1e999',
  '?',
  'x',
];

function damaged(text: string, seed: number): string {
  const next = random(seed);
  const at = (): number => Math.floor(next() * text.length);
  let out = text;
  const times = 1 + Math.floor(next() * 3);
  for (let i = 0; i < times; i++) {
    const a = Math.min(at(), out.length);
    const b = Math.min(out.length, a + Math.floor(next() * 40));
    const word = HOSTILE[Math.floor(next() * HOSTILE.length)];
    switch (Math.floor(next() * 9)) {
      case 0: // One bit.
        out = out.slice(0, a) + String.fromCharCode(out.charCodeAt(a) ^ (1 << Math.floor(next() * 7)) || 32) + out.slice(a + 1);
        break;
      case 1: // Cut.
        out = out.slice(0, a);
        break;
      case 2: // Deleted.
        out = out.slice(0, a) + out.slice(b);
        break;
      case 3: // Doubled.
        out = out.slice(0, b) + out.slice(a, b) + out.slice(b);
        break;
      case 4: // A hostile word.
        out = out.slice(0, a) + word + out.slice(a);
        break;
      case 5: // A number.
        out = out.slice(0, a) + out.slice(a).replace(/\d+/, () => String(Math.floor(next() * 2 ** (next() * 70))));
        break;
      case 6: // A line moved.
        { const lines = out.split('\n'); const [line] = lines.splice(Math.floor(next() * lines.length), 1); lines.splice(Math.floor(next() * lines.length), 0, line); out = lines.join('\n'); }
        break;
      case 7: // A name by another.
        out = out.slice(0, a) + out.slice(a).replace(/%\w+|\b[a-z]\b/, word);
        break;
      default: // Nested.
        out = out.slice(0, a) + '([{<'[Math.floor(next() * 4)].repeat(1 + Math.floor(next() * 600)) + out.slice(a);
    }
  }
  return out;
} // prettier-ignore

const SOURCES: Readonly<Record<string, readonly string[]>> = {
  stablehlo: ['ctl-cond/stablehlo.mlir', 'ctl-scan-rnn/stablehlo.mlir', 'ctl-while/stablehlo.mlir', 'mlp-constraint/shardy.mlir', 'mlp-constraint/gspmd.mlir', 'shard-map-mlp/shardy.mlir', 'shard-map-mlp/gspmd.mlir', 'einshard-mlp-grad-batch2-y4/shardy.mlir'],
  jaxpr: ['ctl-cond/jaxpr.txt', 'ctl-scan-rnn-grad/jaxpr.txt', 'ctl-while/jaxpr.txt', 'shard-map-mlp/jaxpr.txt', 'mlp-constraint/jaxpr.txt', 'einshard-mlp-grad-batch2-y4/jaxpr.txt', 'ctl-vmap-remat/jaxpr.txt'],
}; // prettier-ignore

function check(text: string, format: Format, where: string): 'graph' | 'error' {
  try {
    const graph = importGraph(text, { format, infer });
    lintGraph(graph, infer);
    expect(() => parseGraph(printGraph(graph)), where).not.toThrow();
    return 'graph';
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw new Error(`${where}: ${String(error)}\n${text.slice(0, 3000)}`, { cause: error });
    expect(error.code, `${where}: ${error.message}`).not.toBe('E_INTERNAL');
    // What the parsers refuse has a place; lint speaks of nodes.
    const placed = error.details.position !== undefined || error.code === 'E_GRAPH_LINT';
    expect(placed, `${where}: ${error.code} ${error.message}`).toBe(true);
    expect(error.details.hint ?? '', `${where}: ${error.message}`).not.toBe('');
    return 'error';
  }
} // prettier-ignore

describe('FM-56 damaged text', () => {
  test.each([
    ['stablehlo', 'stablehlo', false],
    ['stablehlo in generic form', 'stablehlo', true],
    ['jaxpr', 'jaxpr', false],
  ] as const)(
    '%s: a checked graph or a coded error',
    (name, format, generic) => {
      const pretty = SOURCES[format].map((file) => jaxText(`${file}.gz`));
      const texts = generic ? pretty.map(genericText) : pretty;
      const found = { graph: 0, error: 0 };
      for (let seed = 1; seed <= CASES; seed++) {
        const text = damaged(texts[seed % texts.length], seed);
        const where = `seed ${seed} of ${name}`;
        found[bounded(where, () => check(text, format, where))]++;
      }
      // Most damage is found; some (a changed constant, a moved line) is another program.
      expect(found.error).toBeGreaterThan(found.graph);
      expect(found.graph).toBeGreaterThan(0);
      expect(({} as Record<string, unknown>).polluted).toBeUndefined();
    },
    600_000,
  );

  test('FM-55 a character less in a statement is found there or at the next token', () => {
    const text = jaxText('mlp-constraint/shardy.mlir.gz');
    const lines = text.split('\n');
    for (const [line, from] of [[4, '%0 ='], [4, 'dot_general'], [4, '%arg2,'], [4, '[1] x'], [6, '<@mesh'], [6, '{"q"}'], [5, '@relu']] as const) {
      const at = lines[line - 1].indexOf(from);
      const broken = [...lines];
      broken[line - 1] = broken[line - 1].slice(0, at) + broken[line - 1].slice(at + 1);
      let found: ShardwrightError | undefined;
      try {
        importGraph(broken.join('\n'), { infer });
      } catch (error) {
        found = error as ShardwrightError;
      }
      expect([from, found?.details.position !== undefined && Math.abs(found.details.position.line - line) <= 1]).toEqual([from, true]);
    }
  }); // prettier-ignore
});
