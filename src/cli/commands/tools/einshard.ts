/** `einshard`: takes an expression or a program and prints the blocks that it means. */

import { ShardwrightError } from '../../../errors.ts';
import { resolveEinshard } from '../../../notations/einshard/resolve.ts';
import { evaluateEinshardProgram } from '../../../notations/einshard-program/program.ts';
import { readEinshardProgram } from '../../../notations/einshard-program/steps.ts';
import { readFileText } from '../../../platform/read-file.ts';
import { einshardReport, einshardText, programText } from '../../../report/text/einshard.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import type { EinshardOptions } from './flags.ts';

/** `einshard EXPR --shape 4,8 --devices 16`, or `einshard --program FILE`. */
export function einshardCommand(
  text: string | undefined,
  options: EinshardOptions,
  io: CliIo,
): number {
  if (options.program !== undefined) return program(text, options.program, options, io);
  const { shape, devices } = options;
  const missing =
    text === undefined ? 'an expression' : shape === undefined ? '--shape' : '--devices';
  if (text === undefined || shape === undefined || devices === undefined)
    throw new ShardwrightError('E_USAGE', `einshard needs ${missing}`, {
      hint:
        "write for example einshard 'a b -> 2 a2* b*' --shape 4,8 --devices 16, or einshard " +
        '--program FILE.',
    });
  const einshard = resolveEinshard(text, { devices, shape });
  const report = einshardReport(einshard, shape, options.draw === true);
  answer(io, options, report, () => einshardText(report, einshard, shape));
  return EXIT.ok;
}

function program(
  text: string | undefined,
  path: string,
  options: EinshardOptions,
  io: CliIo,
): number {
  const extra =
    text !== undefined
      ? `the expression '${text}'`
      : EXPRESSION_ONLY.find((o) => options[o] !== undefined);
  if (extra !== undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `einshard --program takes all from the file, not ${extra}`,
      {
        hint: 'leave it out; the file has the devices, and a shape and expression for each tensor.',
      },
    );
  const json = readFileText(path, { what: 'program' });
  try {
    const result = evaluateEinshardProgram(readEinshardProgram(json));
    answer(io, options, result, programText);
  } catch (error) {
    throw error instanceof ShardwrightError ? error.with({ file: path }) : error;
  }
  return EXIT.ok;
}

const EXPRESSION_ONLY = ['shape', 'devices', 'draw'] as const;
