/**
 * Fills docs/placements.md with what the tool prints. Every line `$ npx shardwright ...` in a
 * ```console block is run, and the lines after it, up to the next `$` or the end of the block,
 * become what it printed; `$ cat FILE` shows a file. A picture asked for with `--svg
 * docs/pictures/NAME.svg` is written there.
 *
 * Usage: npx tsx scripts/docs-placements.ts
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { runCli } from '../src/cli/program.ts';

const root = fileURLToPath(new URL('..', import.meta.url));

export interface Filled {
  readonly document: string;
  /** Content of every picture, by its path in the repository. */
  readonly pictures: ReadonlyMap<string, string>;
}

/** Runs what the document shows. @throws when a command fails, or is not a command of this tool */
export async function fillDocument(document: string): Promise<Filled> {
  const pictures = new Map<string, string>();
  const out: string[] = [];
  let inside = false;
  for (const line of document.split('\n')) {
    if (line.startsWith('```')) {
      inside = !inside && line === '```console';
      out.push(line);
    } else if (inside && line.startsWith('$ ')) {
      out.push(line);
      const printed = await show(line.slice(2), pictures);
      if (printed !== '') out.push(...printed.replace(/\n$/, '').split('\n'));
    } else if (!inside) out.push(line);
  }
  return { document: out.join('\n'), pictures };
}

async function show(command: string, pictures: Map<string, string>): Promise<string> {
  const words = splitWords(command);
  if (words[0] === 'cat' && words.length === 2) return readFileSync(join(root, words[1]), 'utf8');
  if (words[0] !== 'npx' || words[1] !== 'shardwright')
    throw new Error(`not a command of this tool: ${command}`);
  const argv = words.slice(2).map((w) => (w.startsWith('examples/') ? join(root, w) : w));
  const at = argv.indexOf('--svg') + 1;
  const folder = mkdtempSync(join(tmpdir(), 'shardwright-docs-'));
  try {
    const picture = at > 0 ? argv[at] : undefined;
    if (picture !== undefined) argv[at] = join(folder, 'picture.svg');
    let printed = '';
    let errors = '';
    const code = await runCli(argv, {
      stdout: (text) => void (printed += text),
      stderr: (text) => void (errors += text),
      isTerminal: false,
    });
    if (code !== 0) throw new Error(`${command}\nexits with ${code}: ${errors}`);
    if (picture !== undefined)
      pictures.set(picture, readFileSync(join(folder, 'picture.svg'), 'utf8'));
    return printed;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Words of a command line; single and double quotes group, nothing is expanded. */
export function splitWords(command: string): string[] {
  const words: string[] = [];
  for (const [, single, double, bare] of command.matchAll(/'([^']*)'|"([^"]*)"|([^\s'"]+)/g))
    words.push(single ?? double ?? bare);
  return words;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const path = join(root, 'docs', 'placements.md');
  const { document, pictures } = await fillDocument(readFileSync(path, 'utf8'));
  writeFileSync(path, document);
  for (const [picture, svg] of pictures) {
    mkdirSync(dirname(join(root, picture)), { recursive: true });
    writeFileSync(join(root, picture), svg);
  }
  console.log(`filled ${path}, ${pictures.size} pictures`);
}
