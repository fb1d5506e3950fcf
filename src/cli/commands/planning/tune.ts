/**
 * `tune`: takes the configuration of a trainer, and prints what to change in it: single settings,
 * the best layout of the trainer, and the diff of the file to it.
 */
import { writeFileSync } from 'node:fs';
import { basename } from 'node:path';

import { messageOf, ShardwrightError } from '../../../errors.ts';
import type { AskedModel } from '../../../fidelity/asked-question.ts';
import { tunedConfig } from '../../../fidelity/tuned-config.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import { readFileText } from '../../../platform/read-file.ts';
import { tuneText } from '../../../report/text/tune.ts';
import { modelOfFile } from '../../../trainers/model-of-file.ts';
import { clusterText } from '../../input/cluster-file.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import { paintDiff } from '../../output/paint.ts';
import type { RunControl } from '../../thread/run-control.ts';
import { configOf, layoutAsked } from './compare-model.ts';
import type { TuneOptions } from './flags.ts';
import { refuseFlagsOfOther, tuneRun } from './tune-run.ts';

/**
 * `tune`.
 *
 * @param given names of the options on the command line; the others have their defaults
 */
export async function tuneCommand(
  path: string,
  options: TuneOptions,
  given: readonly string[],
  io: CliIo,
  control: RunControl,
): Promise<number> {
  refuseFlagsOfOther(options, given);
  if (options.run === true) return tuneRun(path, options, io);
  const text = readFileText(path, {
    what: 'configuration',
    hint: 'give a configuration of torchtitan, Accelerate, DeepSpeed, Megatron-LM or NeMo.',
  });
  const model = modelAsked(path, text, options);
  const cluster = clusterText(options.cluster, {});
  const layout = layoutAsked(path, model.text, options.devices);
  const { devices, seq: sequence, globalBatch, for: trainer, compiled, memory, risk } = options;
  const { tuned, text: edited } = await tunedConfig(
    {
      file: basename(path),
      text,
      layout,
      model,
      sizes: { devices, cluster, sequence, globalBatch },
      settings: { risk, for: trainer, compiled, memory },
    },
    {
      table: builtinOperators(),
      risk,
      deadline: control.deadline(options.timeLimit),
      ...(options.quiet === true ? {} : { onProgress: io.progress }),
    },
  );
  if (options.output !== undefined) write(options.output, edited);
  answer(io, options, tuned, (t) => tuneText(t, options.verbose === true), paintDiff);
  return tuned.best === null ? EXIT.infeasible : EXIT.ok;
}

/** The model that is asked for, or that of the file. @throws E_USAGE */
function modelAsked(
  path: string,
  text: string,
  { model = modelOfFile(basename(path), text) }: Pick<TuneOptions, 'model'>,
): AskedModel {
  const config = configOf(model);
  if (config !== undefined) return config;
  throw new ShardwrightError('E_USAGE', `--model ${model}: there is no such model`, {
    hint: 'give a name of shardwright models list, or a config.json.',
  });
}

function write(path: string, text: string): void {
  try {
    writeFileSync(path, text);
  } catch (error) {
    throw new ShardwrightError('E_IO', `cannot write: ${messageOf(error)}`, { file: path });
  }
}
