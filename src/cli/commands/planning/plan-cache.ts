/**
 * `plan --cache DIR` keeps answers and gives them again for equal questions. An entry is named by
 * the hash of its question (program, request, flags, version) and holds what was printed and
 * written, so no other question finds it.
 *
 * An answer that a signal or a time limit may have cut short is not kept. A damaged entry is
 * reported and made again.
 */
import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';

import { ownTarget } from '../../../backend/target.ts';
import { ShardwrightError } from '../../../errors.ts';
import { printGraph } from '../../../graph/text/write.ts';
import type { Graph } from '../../../graph/types.ts';
import type { Deadline } from '../../../plan/request/deadline.ts';
import type { PlanRequest } from '../../../plan/request/request.ts';
import { sha256 } from '../../../platform/platform.ts';
import { tableText } from '../../../units.ts';
import { VERSION } from '../../../version.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import { paintScreen } from '../../output/paint.ts';
import { tryFolder, writeFolder } from '../../output/write-file.ts';
import type { PlanOptions } from './flags.ts';

/** Files of a plan folder by name; without content: removed. */
export type PlanFolderFiles = readonly (readonly [string, (string | Uint8Array | undefined)?])[];

/** The printed and written parts of an answer; bytes are base64. */
interface Answer {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly files: readonly (readonly [name: string, text: string | null, base64: string | null])[];
  /** The end of `stdout` that names the files and their folder: its length, and the names. */
  readonly wrote: { readonly length: number; readonly names: readonly string[] };
}

/** Largest answer that is read, unpacked: Node holds no longer string. */
const MOST_BYTES = 2 ** 29 - 64;

/**
 * Last lines of what `plan -o` prints: what was written, and what goes on from there.
 *
 * @param engine the target that writes a program of this kind
 */
export function wroteText(
  folder: string,
  names: readonly string[],
  engine: 'jax' | 'torch',
): string {
  const commands: readonly (readonly [command: string, what: string])[] = [
    [`verify ${folder}`, 'run it with numbers on virtual devices'],
    engine === 'jax'
      ? [`export ${folder} --target jax -o program`, 'a JAX program and its check']
      : [`export ${folder} --target torch --check -o program`, 'a PyTorch program and its check'],
    [`report ${folder} -o report.html`, 'a page with all figures'],
  ];
  return `wrote ${folder}/${names.join(', ')}\n\n${nextText(commands)}\n`;
}

/** Commands that go on, with what each gives. */
export function nextText(commands: readonly (readonly [command: string, what: string])[]): string {
  return tableText(
    commands.map(([command, what], i) => [i === 0 ? 'next' : '', `shardwright ${command}`, what]),
  );
}

/** One question and its place in the folder. */
export class PlanCache {
  private readonly path: string;
  private readonly storage: CliIo;
  private stdout = '';
  private stderr = '';
  private isWritten: Answer['wrote'] = { length: 0, names: [] };
  private files: PlanFolderFiles = [];

  private constructor(
    path: string,
    private readonly engine: 'jax' | 'torch',
    io: CliIo,
  ) {
    this.path = path;
    this.storage = io;
  }

  /**
   * The place of a question. Undefined without `--cache`, and where operators of the user's own
   * decide the answer: no hash knows what their files load.
   *
   * @throws E_USAGE with flags that print or write something else than one plan, E_IO where the
   *   folder cannot be written
   */
  static open(
    graph: Graph,
    request: PlanRequest,
    options: PlanOptions,
    io: CliIo,
  ): PlanCache | undefined {
    const {
      cache,
      output,
      quiet: _,
      timeLimit: __,
      cluster: ___,
      calibration: ____,
      collectives: _____,
      ...flags
    } = options;
    if (cache === undefined) return undefined;
    for (const flag of ['frontier', 'emitIlp'] as const)
      if (flags[flag] !== undefined)
        throw new ShardwrightError(
          'E_USAGE',
          '--cache keeps single plans, and ' +
            `${flag === 'frontier' ? '--frontier' : '--emit-ilp'} asks for more`,
          { hint: 'leave one of them out.' },
        );
    if (flags.ops.length > 0) {
      io.stderr('cache  not used: operators of your own (--ops) may change without a trace\n');
      return undefined;
    }
    const { timeLimitSeconds: ______, ...asked } = request;
    const question = {
      version: VERSION,
      graph: printGraph(graph),
      asked,
      flags,
      writes: output !== undefined,
    };
    const name = `${sha256(JSON.stringify(question))}.json.gz`;
    tryFolder(cache, [name], 'cache');
    return new PlanCache(join(cache, name), ownTarget(graph), io);
  }

  /**
   * Gives the answer that is known: prints it, writes its files into the folder, returns its exit
   * code.
   */
  replay(output: string | undefined): number | undefined {
    const known = this.read();
    if (known === undefined) return undefined;
    const { code, stdout, stderr, files, wrote } = known;
    const paint = stdout.startsWith('{') ? undefined : paintScreen;
    this.storage.stdout(stdout.slice(0, stdout.length - wrote.length), paint);
    if (output !== undefined)
      writeFolder(
        output,
        files.map(
          ([name, text, base64]) =>
            [name, text ?? (base64 === null ? undefined : Buffer.from(base64, 'base64'))] as const,
        ),
        'plan',
      );
    if (output !== undefined && wrote.length > 0)
      this.storage.stdout(wroteText(output, wrote.names, this.engine));
    if (stderr !== '') this.storage.stderr(stderr);
    return code;
  }

  /** Streams that print the answer and record it. */
  get io(): CliIo {
    const io = this.storage;
    return {
      ...io,
      stdout: (text, paint) => {
        this.stdout += text;
        io.stdout(text, paint);
      },
      stderr: (text) => {
        this.stderr += text;
        io.stderr(text);
      },
    };
  }

  /**
   * Hears of the files of the answer, and of the lines that begin with one that names them (empty:
   * none were printed).
   */
  readonly wrote = (files: PlanFolderFiles, lines: string): void => {
    const [line = ''] = lines.split('\n');
    this.files = files;
    this.isWritten = {
      length: lines.length,
      names: line.slice(line.lastIndexOf('/') + 1).split(', '),
    };
  };

  /** Keeps the answer, unless something may have cut it short. */
  store(code: number, deadline: Deadline, isLimited: boolean): void {
    if (
      isLimited ||
      deadline.isOver ||
      (code !== EXIT.ok && code !== EXIT.gap && code !== EXIT.infeasible)
    )
      return;
    const files = this.files.map(([name, content]) => {
      const bytes = content !== undefined && typeof content !== 'string';
      return [
        name,
        typeof content === 'string' ? content : null,
        bytes ? Buffer.from(content).toString('base64') : null,
      ] as const;
    });
    const answer: Answer = {
      code,
      stdout: this.stdout,
      stderr: this.stderr,
      files,
      wrote: this.isWritten,
    };
    const body = JSON.stringify(answer);
    const entry = gzipSync(JSON.stringify({ sha256: sha256(body), body }), { level: 1 });
    writeFolder(dirname(this.path), [[basename(this.path), entry]], 'cache');
  }

  private read(): Answer | undefined {
    if (!existsSync(this.path)) return undefined;
    try {
      const text = gunzipSync(readFileSync(this.path), { maxOutputLength: MOST_BYTES }).toString(
        'utf8',
      );
      const { sha256: hash, body } = JSON.parse(text) as {
        readonly sha256: string;
        readonly body: string;
      };
      if (sha256(body) === hash) return JSON.parse(body) as Answer;
    } catch {
      // An entry that cannot be read is damaged, too.
    }
    this.storage.stderr(`cache  ${this.path} is damaged: the plan is made again\n`);
    return undefined;
  }
}
