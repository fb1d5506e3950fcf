/**
 * Prints to stdout and stderr with control characters escaped, and turns errors into messages and
 * exit codes.
 */

import { defined } from '../../defined.ts';
import { messageOf, ShardwrightError } from '../../errors.ts';
import { type Paint, paintMessage } from './paint.ts';

/** The streams of a process: stdout is the answer, stderr the progress. */
export interface CliStreams {
  readonly stdout: (text: string) => void;
  readonly stderr: (text: string) => void;
  readonly isTerminal: boolean;
  /** The streams that show colours; absent: none does. */
  readonly colours?: StreamColours;
}

export interface StreamColours {
  readonly stdout: boolean;
  readonly stderr: boolean;
}

/** The streams that a command writes to. */
export interface CliIo extends CliStreams {
  /** @param paint how a terminal shows each line; absent: plain */
  readonly stdout: (text: string, paint?: Paint) => void;
  /** A line of progress; on a terminal it takes the place of the one before. */
  readonly progress: (line: string) => void;
}

/**
 * The one place that prints: names of files, flags and models come from anywhere, and what a
 * terminal would obey is shown as `\u001b` instead. In JSON that is the same text. Line breaks and
 * tabs are ours.
 */
export function printer({ stdout, stderr, isTerminal, colours }: CliStreams): CliIo {
  let passing = false;
  // A line of progress does not stay before what comes next.
  const print = (write: (text: string) => void, text: string, paint?: Paint): void => {
    if (passing) stderr('\r\x1b[K');
    passing = false;
    const shown = visible(text);
    // Colours come after the escapes: only ours are obeyed.
    write(paint === undefined ? shown : shown.split('\n').map(paint).join('\n'));
  };
  return {
    stdout: (text, paint) => print(stdout, text, colours?.stdout === true ? paint : undefined),
    stderr: (text) => print(stderr, text, colours?.stderr === true ? paintMessage : undefined),
    isTerminal,
    ...defined({ colours }),
    progress: (line) => {
      stderr(isTerminal ? `\r\x1b[K${oneLine(line)}` : `${oneLine(line)}\n`);
      passing = isTerminal;
    },
  };
}

/**
 * C0 but for line breaks and tabs (CSV ends its lines with both), DEL and C1, line separators, what
 * turns the reading direction.
 */
const OBEYED = /\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]/g;

function visible(text: string): string {
  return text.replace(OBEYED, codeOf);
}

/** Makes a text one line, so that it cannot pass for two. */
function oneLine(text: string): string {
  return visible(text).replace(/[\r\n]/g, codeOf);
}

function codeOf(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/**
 * Prints what a command answers: one JSON value with `--json`, else its text.
 *
 * @param paint how a terminal shows the lines of the text
 */
export function answer<T>(
  io: Pick<CliIo, 'stdout'>,
  { json }: { readonly json?: boolean },
  value: T,
  text: (value: T) => string,
  paint?: Paint,
): void {
  if (json !== true) {
    io.stdout(`${text(value)}\n`, paint);
    return;
  }
  for (const piece of jsonPieces(value)) io.stdout(piece);
  io.stdout('\n');
}

/** Characters of a piece of JSON; the last value goes over it. */
const PIECE = 2 ** 20;

/**
 * The text of `JSON.stringify` in pieces: of an object with long lists the whole is never in memory
 * at once.
 */
export function* jsonPieces(value: unknown): Generator<string> {
  if (typeof value !== 'object' || value === null || Array.isArray(value) || 'toJSON' in value) {
    yield JSON.stringify(value);
    return;
  }
  let piece = '{';
  let separator = '';
  for (const [key, inner] of Object.entries(value) as [string, unknown][]) {
    const head = `${separator}${JSON.stringify(key)}:`;
    if (!Array.isArray(inner)) {
      const text = JSON.stringify(inner) as string | undefined;
      if (text === undefined) continue;
      piece += head + text;
    } else {
      piece += `${head}[`;
      for (let i = 0; i < inner.length; i++) {
        // JSON lists have no holes: an absent item is written `null`.
        piece +=
          (i === 0 ? '' : ',') + ((JSON.stringify(inner[i]) as string | undefined) ?? 'null');
        if (piece.length < PIECE) continue;
        yield piece;
        piece = '';
      }
      piece += ']';
    }
    separator = ',';
  }
  yield `${piece}}`;
}

export const EXIT = {
  ok: 0,
  internal: 1,
  usage: 2,
  infeasible: 3,
  gap: 4,
  findings: 5,
  interrupted: 130,
} as const;

/** Prints an error for people, or as one JSON value, and returns the exit code that it means. */
export function reportError(error: unknown, io: CliIo, json: boolean): number {
  const known = error instanceof ShardwrightError ? error : undefined;
  const code = exitOf(known?.code);
  const message = known?.headline ?? `E_INTERNAL internal: ${messageOf(error)}`;
  const hint = known?.details.hint ?? (code === EXIT.internal ? INTERNAL_HINT : undefined);
  if (json) {
    const { file, position, node, path } = known?.details ?? {};
    const where = { file, line: position?.line, column: position?.column, node, path };
    const body = {
      code: known?.code ?? 'E_INTERNAL',
      message: known?.message ?? message,
      where,
      hint,
    };
    io.stdout(`${JSON.stringify({ error: body })}\n`);
    return code;
  }
  // Lines after the first are indented: a name with a line break in it cannot pass for a line of
  // its own.
  io.stderr(`${message.replaceAll('\n', '\n  ')}\n`);
  const { excerpt, position } = known?.details ?? {};
  if (excerpt !== undefined) {
    io.stderr(`  ${oneLine(excerpt)}\n`);
    if (position !== undefined && position.column <= excerpt.length + 1)
      io.stderr(
        `  ${' '.repeat(oneLine(excerpt.slice(0, Math.max(0, position.column - 1))).length)}^\n`,
      );
  }
  if (hint !== undefined) io.stderr(`  hint: ${hint.replaceAll('\n', '\n  ')}\n`);
  if (
    code === EXIT.internal &&
    error instanceof Error &&
    error.stack !== undefined &&
    known === undefined
  )
    io.stderr(`${error.stack}\n`);
  return code;
}

function exitOf(code: string | undefined): number {
  if (code === undefined || code === 'E_INTERNAL') return EXIT.internal;
  if (code === 'E_DIFFERS') return EXIT.findings;
  if (code === 'E_INTERRUPTED') return EXIT.interrupted;
  return code === 'E_TIME_LIMIT' ? EXIT.gap : EXIT.usage;
}

const INTERNAL_HINT =
  'This is a defect of Shardwright. Please report it with the command and the model file.';
