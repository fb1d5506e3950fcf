/** One run of the command line: its output streams and its exit code. */

import type { Command } from 'commander';

import type { Defaults } from '../../input/defaults.ts';
import type { Flags } from '../../input/flags/flag.ts';
import type { CliIo, CliStreams } from '../../output/io.ts';
import type { RunControl } from '../../thread/run-control.ts';

/** One run of the command line: where it writes, and the exit code that the command leaves. */
export interface CliSession {
  readonly io: CliIo;
  /** The signal and the time limit that may end the command early. */
  readonly control: RunControl;
  /** The flags of every command. */
  readonly flagsOf: Map<Command, Flags>;
  /** Defaults of this place for flags, read when a command runs. */
  readonly defaults: () => Defaults;
  /** Runs another command line in this process; resolves to its exit code. */
  readonly runCli: (argv: readonly string[], streams: CliStreams) => Promise<number>;
  exit: number;
}
