/** One run of the command line: its output streams and its exit code. */

import type { CliIo } from '../../output/io.ts';

/** One run of the command line: where it writes, and the exit code that the command leaves. */
export interface CliSession {
  readonly io: CliIo;
  exit: number;
}
