/**
 * Runs the blocks of a document and writes what they print below them: `npx tsx
 * scripts/docs-capture.ts [docs/local-spmd.md]`, docs/capture.md if none is named. Tests hold both
 * documents to it.
 *
 *  - a `ts` block is a module of its own; `ts check` and `ts rewrite` ones go through the
 *    source-level front end in that mode. The `text` block after it is what it prints.
 *  - a `console` block holds commands (`$ shardwright ...`), each followed by what it prints.
 *  - in the table of refusals the first cell is an expression over traced x and y, the last one
 *    another that is accepted; the code between them is filled in.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { format } from 'node:util';
import vm from 'node:vm';

import { stripTypes, wrapConditions } from '../src/trace/source/wrap-conditions.ts';
import { COMMAND } from './command.ts';
import { loadEntries } from './entries.ts';

const root = fileURLToPath(new URL('../', import.meta.url));
export const DOCUMENT = `${root}docs/capture.md`;

/** The library as the blocks import it. */
const library = await loadEntries();

type Mode = 'plain' | 'check' | 'rewrite';

/** The text that a module prints with `console.log`. */
export async function printed(source: string, mode: Mode): Promise<string> {
  const name = 'net.model.ts';
  const text = mode === 'plain' ? stripTypes(source, name) : wrapConditions(source, name, { mode });
  const body = text
    .replaceAll(
      /^import \{([^}]*)\} from ["'](shardwright(?:\/[\w-]+)?)["'];/gm,
      (_, names: string, entry: string) =>
        `const {${names.replaceAll(/ as /g, ': ')}} = library['${entry}'];`,
    )
    .replaceAll(/^export /gm, '')
    .replace(/\n\/\/# sourceMappingURL=.*$/, '');
  const lines: string[] = [];
  const run = vm.runInThisContext(`(async (library, console) => {${body}\n})`, {
    filename: name,
  }) as (from: typeof library, console: { log: (...values: unknown[]) => void }) => Promise<void>;
  await run(library, { log: (...values) => void lines.push(format(...values)) });
  return lines
    .join('\n')
    .replaceAll(/[ \t]+$/gm, '')
    .trimEnd();
}

/** The text that a command line prints; `shardwright` is the one of this checkout. */
export function commandOutput(command: string): string {
  const shell =
    `shardwright() { "$NODE" ${COMMAND.map((word) => `'${word}'`).join(' ')} "$@"; }; ` +
    `${command}`;
  const out = execFileSync('bash', ['-c', shell], {
    cwd: root,
    encoding: 'utf8',
    env: { ...process.env, NODE: process.execPath },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  return out.replaceAll(/[ \t]+$/gm, '').trimEnd();
}

/** The code of the refusal that an expression over traced tensors meets, or `accepted`. */
export async function verdict(expression: string): Promise<string> {
  const words = new Set(`${expression} trace spec`.match(/\w+/g));
  const imports = Object.entries(library).map(([entry, names]) => {
    const used = Object.keys(names).filter((name) => words.has(name));
    return `import { ${used.join(', ')} } from '${entry}';`;
  });
  const source = `${imports.join('\n')}
let kept;
try {
  trace(({ x, y }) => { const out = ${expression}; return typeof out === 'object' ? out : x; }, { x: spec([4, 8]), y: spec([4, 8]) });
  console.log('accepted');
} catch (error) {
  console.log(error.code ?? error.message);
}`;
  return printed(source, 'check');
}

/**
 * The document with everything that is printed filled in anew.
 *
 * @param outputOf what a command line prints
 */
export async function fillDocument(
  document: string,
  outputOf: (command: string) => string | Promise<string> = commandOutput,
): Promise<string> {
  const parts: string[] = [];
  let at = 0;
  const fence = /^```(ts(?: check| rewrite)?|console)\n([^]*?)^```\n(?:\n```text\n[^]*?^```\n)?/gm;
  for (const match of document.matchAll(fence)) {
    const [whole, kind, body] = match;
    parts.push(document.slice(at, match.index));
    at = match.index + whole.length;
    if (kind === 'console') {
      const commands = body.split('\n').filter((line) => line.startsWith('$ '));
      const runs: string[] = [];
      for (const line of commands) runs.push(`${line}\n${await outputOf(line.slice(2))}\n`);
      parts.push(`\`\`\`console\n${runs.join('')}\`\`\`\n`);
      continue;
    }
    const mode = kind === 'ts' ? 'plain' : (kind.slice(3) as Mode);
    const out = await printed(body, mode);
    parts.push(
      `\`\`\`${kind}\n${body}\`\`\`\n${out === '' ? '' : `\n\`\`\`text\n${out}\n\`\`\`\n`}`,
    );
  }
  parts.push(document.slice(at));
  return fillRefusals(parts.join(''));
}

/** Rows of the table of refusals: what is written, code, what to do, what is accepted. */
async function fillRefusals(document: string): Promise<string> {
  const lines = document.split('\n');
  const head = lines.findIndex((line) => line.startsWith('| written'));
  for (let i = head + 2; head >= 0 && lines[i].startsWith('|'); i++) {
    // A bar inside code is written \|.
    const cells = lines[i].split(/(?<!\\)\|/).slice(1, -1);
    const code = (cell: string): string =>
      cell
        .trim()
        .replace(/^(`+ ?)(.*?) ?`+$/, '$2')
        .replaceAll('\\|', '|');
    const found = await verdict(code(cells[0]));
    const accepted = await verdict(code(cells[2]));
    if (accepted !== 'accepted') throw new Error(`${cells[2].trim()} is refused: ${accepted}`);
    if (found === 'accepted') throw new Error(`${cells[0].trim()} is not refused`);
    cells[1] = ` \`${found}\` `.padEnd(cells[1].length);
    lines[i] = `|${cells.join('|')}|`;
  }
  return lines.join('\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const document = process.argv[2] ?? DOCUMENT;
  writeFileSync(document, await fillDocument(readFileSync(document, 'utf8')));
}
