/**
 * Turns an error in a program of the user into one line with its place, for the user to fix. It is
 * not reported as a defect of Shardwright.
 */

import { existsSync, readFileSync } from 'node:fs';
import { dirname, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

import { ShardwrightError } from '../../errors.ts';
import { shownFile } from '../../trace/errors/position.ts';

/** The library's own code, `.../src/` or `.../dist/`. */
const LIBRARY = dirname(dirname(dirname(fileURLToPath(import.meta.url)))) + sep;

/**
 * The error to show when a program of the user threw while it was loaded or run. Errors of the
 * library stay what they are, and so does one whose first frame is in the library: that is a defect
 * of ours.
 *
 * @param file absolute path of the program
 */
export async function scriptError(error: unknown, file: string): Promise<unknown> {
  if (error instanceof ShardwrightError)
    return error.details.file === undefined ? error.with(declared(file)) : error;
  const syntax = await syntaxFault(file);
  if (syntax !== undefined) return syntax;
  const place = error instanceof Error ? placeOf(error.stack ?? '') : undefined;
  if (place?.file.startsWith(LIBRARY) === true) return error;
  const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  const at = place ?? { file };
  return new ShardwrightError(
    'E_INPUT',
    `the program fails: ${text.replaceAll(/\s*\n\s*/g, ' ')}`,
    {
      file: shownFile(at.file),
      ...('line' in at ? { position: { line: at.line, column: at.column } } : {}),
      hint:
        (await exportedElsewhere(text)) ??
        'run it by itself with `node --import shardwright/register FILE`.',
    },
  );
}

/**
 * The hook that transforms the source runs in a thread of its own, and what it throws loses its
 * details on the way.
 */
async function syntaxFault(file: string): Promise<ShardwrightError | undefined> {
  // TypeScript, its parser, is there: the hook has asked for it. Who loads no program does without
  // it.
  const { wrapConditions } = await import('../../trace/source/wrap-conditions.ts');
  try {
    wrapConditions(readFileSync(file, 'utf8'), file);
    return undefined;
  } catch (error) {
    return error instanceof ShardwrightError ? error : undefined;
  }
}

/** The entries of the package, loaded to find which one has a name. */
const ENTRIES: Readonly<Record<string, () => Promise<object>>> = {
  shardwright: () => import('../../index.ts'),
  'shardwright/trace': () => import('../../entries/trace.ts'),
  'shardwright/local-spmd': () => import('../../entries/local-spmd.ts'),
  'shardwright/graph': () => import('../../entries/graph.ts'),
  'shardwright/ops': () => import('../../entries/ops.ts'),
  'shardwright/plan': () => import('../../entries/plan.ts'),
  'shardwright/recipes': () => import('../../entries/recipes.ts'),
  'shardwright/models': () => import('../../entries/models.ts'),
  'shardwright/cost': () => import('../../entries/cost.ts'),
  'shardwright/report': () => import('../../entries/report.ts'),
  'shardwright/notations': () => import('../../entries/notations.ts'),
  'shardwright/checkpointing': () => import('../../entries/checkpointing.ts'),
  'shardwright/solver': () => import('../../entries/solver.ts'),
};

/** Where a name is that a program imports from an entry which lacks it: each is in one. */
async function exportedElsewhere(fault: string): Promise<string | undefined> {
  const [, name] =
    /module 'shardwright(?:\/[\w-]+)?' does not provide an export named '([\w$]+)'/.exec(fault) ??
    [];
  if (name === undefined) return undefined;
  for (const [entry, load] of Object.entries(ENTRIES))
    if (name in (await load())) return `import { ${name} } from '${entry}'.`;
  return undefined;
}

interface StackPlace {
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

/**
 * The innermost place of a stack that is a file; a fault of linking names only file and line, at
 * the top.
 */
function placeOf(stack: string): StackPlace | undefined {
  for (const line of stack.split('\n')) {
    const [, found, row, column] =
      /(?:^|\(|\s)((?:file:\/\/)?(?:\/|[A-Za-z]:[\\/])[^()\s]*?):(\d+)(?::(\d+))?\)?$/.exec(line) ??
      [];
    if (found === undefined) continue;
    const file = found.startsWith('file://') ? fileURLToPath(found) : found;
    if (existsSync(file))
      return { file, line: Number(row), column: column === undefined ? 1 : Number(column) };
  }
  return undefined;
}

/** File and, where it can be told, place of the model's declaration. */
function declared(file: string): { file: string; position?: { line: number; column: number } } {
  const lines = readFileSync(file, 'utf8').split('\n');
  const pattern = /^export\s+(?:default\b|(?:async\s+)?(?:function|const|let|var)\s*\*?\s*model\b)/;
  const row = lines.findIndex((line) => pattern.test(line));
  return row < 0
    ? { file: shownFile(file) }
    : { file: shownFile(file), position: { line: row + 1, column: 1 } };
}
