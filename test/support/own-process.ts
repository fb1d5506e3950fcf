import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** What one command line gave. */
export interface CliRun {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** What the parent asks: a command line, or a program to run as `node FILE` would. */
export type Ask =
  | { readonly kind: 'cli'; readonly argv: readonly string[] }
  | { readonly kind: 'program'; readonly file: string };

/** A run, or why there is none. */
export type Answer = CliRun | { readonly fault: string };

const CHILD = fileURLToPath(new URL('./own-process-child.ts', import.meta.url));
const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/**
 * A Node process beside the test runner, in the root of the checkout, that runs command lines and
 * programs one after the other. The hooks that watch the sources of a program do not work inside
 * the test runner, and a process for every line would spend most of its seconds on loading the same
 * modules. What belongs to a process alone (its exit code, two of them that agree) is tested with
 * processes that are spawned for it.
 */
export class OwnProcess {
  private static one: OwnProcess | undefined;
  private readonly child: ChildProcess;
  private noise = '';
  private last: Promise<unknown> = Promise.resolve();

  private constructor() {
    this.child = fork(CHILD, {
      cwd: ROOT,
      execArgv: ['--import', 'tsx'],
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    for (const stream of [this.child.stdout, this.child.stderr])
      stream?.setEncoding('utf8').on('data', (text: string) => (this.noise += text));
    // It ends when the thread does that started it (own-process-child.ts), and does not keep it
    // alive.
    this.child.unref();
    this.child.channel?.unref();
  }

  /**
   * The one of this thread: files of tests that run in it share the process, which loads the
   * modules once.
   */
  static shared(): OwnProcess {
    return (OwnProcess.one ??= new OwnProcess());
  }

  /** Runs `shardwright ...argv`. @throws Error where the process ends instead of answering */
  cli(...argv: readonly string[]): Promise<CliRun> {
    return this.ask({ kind: 'cli', argv });
  }

  /**
   * Loads a program as the file on the command line; `out` is what it prints. @throws Error with
   * what it throws
   */
  program(file: string): Promise<CliRun> {
    return this.ask({ kind: 'program', file });
  }

  private ask(ask: Ask): Promise<CliRun> {
    const answer = this.last.then(() => this.exchange(ask));
    this.last = answer.catch(() => undefined);
    return answer;
  }

  private exchange(ask: Ask): Promise<CliRun> {
    return new Promise((resolve, reject) => {
      const ended = (code: number | null): void =>
        reject(new Error(`the process ended (${code}): ${this.noise}`));
      if (this.child.exitCode !== null || this.child.signalCode !== null)
        return ended(this.child.exitCode);
      this.child.once('exit', ended);
      this.child.once('message', (answer) => {
        this.child.off('exit', ended);
        const given = answer as Answer;
        if ('fault' in given) reject(new Error(`${given.fault}\n${this.noise}`));
        else resolve(given);
      });
      this.child.send(ask);
    });
  }
}
