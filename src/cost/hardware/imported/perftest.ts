/**
 * Reads what `ib_write_bw`, `ib_read_bw` and `ib_send_bw` print: the rate of one network card, by
 * bytes of a message. `MB` of perftest are 2^20 bytes, `Gb` 10^9 bits.
 * Source: `src/perftest_parameters.h` of linux-rdma/perftest.
 */

import { ShardwrightError } from '../../../errors.ts';

const HEADER = /#bytes\s+#iterations\s+BW peak\[\S+\]\s+BW average\[(MB\/sec|Gb\/sec|MiB\/sec)\]/;

/** The rate that one run of perftest measured. */
interface CardRate {
  /** One way, at the message of the highest average. */
  readonly bytesPerSecond: number;
  readonly device: string | undefined;
  readonly isBidirectional: boolean;
}

/** Tells whether a text is a run of a bandwidth test. */
export function isPerftest(text: string): boolean {
  return HEADER.test(text);
}

/** @throws E_CLUSTER with its line for a row without an average, and for a run without rows */
export function readPerftest(text: string, file: string): CardRate {
  const lines = text.split(/\r?\n/);
  const isBidirectional = /\bBidirectional BW Test\b/.test(text);
  let unit: number | undefined;
  let best = 0;
  lines.forEach((line, at) => {
    const header = HEADER.exec(line);
    if (header !== null) unit = header[1] === 'Gb/sec' ? 1e9 / 8 : 2 ** 20;
    else if (unit !== undefined && /^\s*\d+\s+\d+\s/.test(line)) {
      const average = Number(line.trim().split(/\s+/)[3]);
      if (!(average >= 0 && average < 1e9))
        throw new ShardwrightError(
          'E_CLUSTER',
          `no average rate in '${line.trim().slice(0, 60)}'`,
          {
            file,
            position: { line: at + 1, column: 1 },
            hint: 'keep the rows as ib_write_bw prints them.',
          },
        );
      best = Math.max(best, average * unit);
    }
  });
  if (!(best > 0))
    throw new ShardwrightError('E_CLUSTER', 'the run has no rate', {
      file,
      hint: 'keep the rows as ib_write_bw prints them.',
    });
  return {
    bytesPerSecond: isBidirectional ? best / 2 : best,
    device: /\bDevice\s*:\s*(\S+)/.exec(text)?.[1],
    isBidirectional,
  };
}
