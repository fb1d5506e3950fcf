import { ShardwrightError } from '../errors.ts';

/** Where a command writes: stdout is the answer, stderr the progress. */
export interface CliIo {
  readonly stdout: (text: string) => void;
  readonly stderr: (text: string) => void;
  readonly isTerminal: boolean;
}

export const EXIT = { ok: 0, internal: 1, usage: 2, infeasible: 3, gap: 4, findings: 5 } as const;

/** Prints an error for people, or as one JSON value, and returns the exit code that it means. */
export function reportError(error: unknown, io: CliIo, json: boolean): number {
  const known = error instanceof ShardwrightError ? error : undefined;
  const code = exitOf(known?.code);
  const message = known?.headline ?? `E_INTERNAL internal: ${error instanceof Error ? error.message : String(error)}`;
  const hint = known?.details.hint ?? (code === EXIT.internal ? INTERNAL_HINT : undefined);
  if (json) {
    const { file, position, node, path } = known?.details ?? {};
    const where = { file, line: position?.line, column: position?.column, node, path };
    const body = { code: known?.code ?? 'E_INTERNAL', message: known?.message ?? message, where, hint };
    io.stdout(`${JSON.stringify({ error: body })}\n`);
    return code;
  }
  io.stderr(`${message}\n`);
  const { excerpt, position } = known?.details ?? {};
  if (excerpt !== undefined) {
    io.stderr(`  ${excerpt}\n`);
    if (position !== undefined && position.column <= excerpt.length + 1)
      io.stderr(`  ${' '.repeat(Math.max(0, position.column - 1))}^\n`);
  }
  if (hint !== undefined) io.stderr(`  hint: ${hint}\n`);
  if (code === EXIT.internal && error instanceof Error && error.stack !== undefined && known === undefined)
    io.stderr(`${error.stack}\n`);
  return code;
}

function exitOf(code: string | undefined): number {
  if (code === undefined || code === 'E_INTERNAL') return EXIT.internal;
  return code === 'E_TIME_LIMIT' ? EXIT.gap : EXIT.usage;
}

const INTERNAL_HINT = 'This is a defect of Shardwright. Please report it with the command and the model file.';
