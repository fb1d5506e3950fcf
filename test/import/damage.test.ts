import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import type { Format } from '../../src/import/formats.ts';
import { readHlo } from '../../src/import/hlo/collectives.ts';
import { importGraph } from '../../src/import/import.ts';
import { random } from '../ops/support/arrays.ts';
import { corpusText } from './corpus.ts';
import { answerKey, text } from './fixtures.ts';
import { genericText } from './support-generic.ts';
import { jaxText } from './support-jax.ts';
import { infer, inputTypes } from './twins.ts';

/**
 * In a statement of each text format, one mark (a bracket, a quote, an equals sign ...) is deleted,
 * swapped with its neighbour, or the text is cut there. The importer must not return a graph: it
 * reports an error in the damaged line or at the next token.
 */

interface Source {
  readonly format: Format;
  readonly text: string;
  /** Lines to damage. */
  readonly statement: RegExp;
  /**
   * Part of the line that has meaning (no comments, no texts for people); up to a comment by
   * default.
   */
  readonly meaning?: RegExp;
}

const readable = text('mlp/joint.readable.txt.gz');
const traced = `V1120 11:01:03.362000 13582 a.py:28] {"aot_joint_graph": {}, "frame_id": 0, "has_payload": "00"}\n\t${readable.trimEnd().replaceAll('\n', '\n\t')}`;
const scan = jaxText('ctl-scan-rnn/stablehlo.mlir.gz');

const SOURCES: readonly (readonly [name: string, source: Source])[] = [
  ['print_readable', { format: 'fx', text: readable, statement: /^ +\w+: ".* = / }],
  [
    'print_readable, expanded',
    { format: 'fx', text: text('mlp/joint.expanded.txt.gz'), statement: /^ +\w+: ".* = / },
  ],
  [
    'a body of a condition',
    { format: 'fx', text: text('hop-cond/export.readable.txt.gz'), statement: /^ +\w+: ".* = / },
  ],
  [
    'a repro file',
    {
      format: 'fx',
      text: text('repro/mlp-forward.py.gz'),
      statement: /^ +(\w+ = torch|reader|buf\d)/,
    },
  ],
  [
    'str(ExportedProgram)',
    {
      format: 'exported-program',
      text: text('mlp-dynamic/export.ep.txt.gz'),
      statement: /^ +\w+: ".* = /,
    },
  ],
  ['str(graph)', { format: 'fx-graph', text: text('mlp/joint.graph.txt.gz'), statement: /^ +%/ }],
  [
    'TORCH_LOGS',
    {
      format: 'torch-log',
      text: text('logs/mlp.log.gz').split('\n').slice(0, 50).join('\n'),
      statement: /aot_joint_graph\] +\w+: ".* = /,
      meaning: /(?<=\] ) +\w+: .*/,
    },
  ],
  ['TORCH_TRACE', { format: 'torch-trace', text: traced, statement: /^\t +\w+: ".* = / }],
  ['StableHLO', { format: 'stablehlo', text: scan, statement: /^ +%/ }],
  [
    'StableHLO with Shardy',
    {
      format: 'stablehlo',
      text: jaxText('einshard-mlp-grad-batch2-y4/shardy.mlir.gz'),
      statement: /^ +(%|func)/,
    },
  ],
  [
    'StableHLO with GSPMD',
    {
      format: 'stablehlo',
      text: jaxText('shard-map-mlp/gspmd.mlir.gz'),
      statement: /^ +(%\d|func)/,
    },
  ],
  ['StableHLO, generic', { format: 'stablehlo', text: genericText(scan), statement: /^ +%/ }],
  [
    'jaxpr',
    {
      format: 'jaxpr',
      text: jaxText('einshard-mlp-grad-batch2-y4/jaxpr.txt.gz'),
      statement: /^ +\w+:/,
    },
  ],
  // What stands behind the operands is read by those who need it.
  [
    'HLO',
    {
      format: 'hlo',
      text: corpusText('jax/einshard-mlp-2d-weight/shardy.partitioned.hlo'),
      statement: /^ +(ROOT )?%/,
      meaning: /^ +(ROOT )?%\S+ = \S+ [\w-]+\([^)]*\)/,
    },
  ],
  [
    'graph text',
    {
      format: 'swgraph',
      text: printGraph(importGraph(text('hop-cond/export.readable.txt.gz'), { infer })),
      statement: /^ +(in |out |%)/,
    },
  ],
  [
    'model.json',
    {
      format: 'pt2-json',
      text: text('mlp-loss/export.model.json.gz'),
      statement: /./,
      meaning: /^.{560}/,
    },
  ],
];

const inputs = inputTypes(answerKey('mlp/joint').shapes);

function read(source: string, format: Format): void {
  if (format === 'hlo') readHlo(source);
  else
    importGraph(source, {
      format,
      infer,
      inputs,
      ...(format === 'torch-log' ? { select: 'aot_joint_graph' } : {}),
    });
}

const MARKS = '()[]{}=:"\'<>';

interface Damage {
  readonly what: string;
  readonly text: string;
  readonly line: number;
}

/** Ten places, chosen by the seed, damaged in three ways each. */
function* damaged({ text: whole, statement, meaning }: Source, seed: number): Generator<Damage> {
  const next = random(seed);
  const lines = whole.split('\n');
  const starts = [0];
  for (const line of lines) starts.push(starts[starts.length - 1] + line.length + 1);
  const places = lines.flatMap((line, i) => {
    if (!statement.test(line)) return [];
    const found = meaning === undefined ? undefined : (meaning.exec(line) ?? undefined);
    const from = found?.index ?? 0;
    const to = found === undefined ? line.search(/;|#|\/\/|$/) : from + found[0].length;
    return [...line.slice(from, to)].flatMap((c, k) =>
      MARKS.includes(c) ? [{ line: i, at: starts[i] + from + k }] : [],
    );
  });
  for (let i = 0; i < 10; i++) {
    const { line, at } = places[Math.floor(next() * places.length)];
    const where = `seed ${seed}, ${JSON.stringify(lines[line].trim().slice(0, 90))}`;
    const [a, b] = [whole[at], whole[at + 1]];
    yield {
      what: `${where}: '${a}' deleted`,
      text: whole.slice(0, at) + whole.slice(at + 1),
      line: line + 1,
    };
    // Blanks mean nothing, and a quote may change places with the last character of its text.
    if (a !== b && /\S/.test(b ?? '') && !/["'\w]/.test(a + b))
      yield {
        what: `${where}: '${a}${b}' swapped`,
        text: whole.slice(0, at) + b + a + whole.slice(at + 2),
        line: line + 1,
      };
    yield { what: `${where}: cut before '${a}'`, text: whole.slice(0, at), line: line + 1 };
  }
}

describe('one damaged mark is found in its statement', () => {
  test.each(SOURCES)('%s', (_, source) => {
    read(source.text, source.format);
    let tried = 0;
    for (const seed of [1, 2, 3]) {
      for (const { what, text: broken, line } of damaged(source, seed)) {
        tried++;
        let found: unknown;
        try {
          read(broken, source.format);
        } catch (error) {
          found = error;
        }
        if (!(found instanceof ShardwrightError))
          throw new Error(
            `${what}: ${found instanceof Error ? found.message : 'a graph was made'}`,
          );
        const at = found.details.position;
        expect([
          what,
          found.headline,
          at !== undefined && (at.line === line || at.line === line + 1),
          (at?.column ?? 0) > 0,
        ]).toEqual([what, found.headline, true, true]);
        expect(found.details.hint ?? '').not.toBe('');
      }
    }
    expect(tried).toBeGreaterThanOrEqual(60);
  });
});
