/** The headers and limits that the answers of a server share. */
import type { KeptPlans } from './kept-plans.ts';
import type { CommandLine } from './run-command.ts';

/** Settings and plans of a running server. */
export interface Served {
  /** Headers of every answer. */
  readonly headers: Readonly<Record<string, string>>;
  readonly kept: KeptPlans;
  /** Program and first words of a process that runs the command line. */
  readonly commandLine: CommandLine;
  /** True if program files of the page are run (`--allow-programs`). */
  readonly allowPrograms: boolean;
}
