/**
 * `tune`: takes the configuration of a trainer, and prints what to change in it: single settings,
 * the best layout of the trainer, and the diff of the file to it.
 */
import { writeFileSync } from 'node:fs';
import { basename } from 'node:path';

import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import { defaultCostPreset } from '../../../cost/presets/presets.ts';
import { defined } from '../../../defined.ts';
import { messageOf, ShardwrightError } from '../../../errors.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import { readFileText } from '../../../platform/read-file.ts';
import { tuneText } from '../../../report/text/tune.ts';
import { tuneFile } from '../../../sweep/layout/tune-file.ts';
import { modelsOfFile } from '../../../trainers/model-of-file.ts';
import { clusterText } from '../../input/cluster-file.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import { paintDiff } from '../../output/paint.ts';
import type { RunControl } from '../../thread/run-control.ts';
import {
  checkedLayout,
  configOf,
  layoutAsked,
  layoutSource,
  questionAsked,
} from './compare-model.ts';
import type { TuneOptions } from './flags.ts';

/** `tune`. */
export async function tuneCommand(
  path: string,
  options: TuneOptions,
  io: CliIo,
  control: RunControl,
): Promise<number> {
  const text = readFileText(path, {
    what: 'configuration',
    hint: 'give a configuration of torchtitan, Accelerate, DeepSpeed, Megatron-LM or NeMo.',
  });
  const config = modelAsked(path, text, options);
  const cluster = clusterText(options.cluster, {});
  const asked = layoutAsked(path, config.text, options.devices);
  const cost = defaultCostPreset(loadCluster(cluster));
  const { devices, seq: sequence, globalBatch, for: trainer, compiled, memory } = options;
  const question = questionAsked(
    config,
    { devices, cluster, ...defined({ sequence, globalBatch }) },
    { risk: options.risk, ...defined({ for: trainer, compiled, memory }) },
    { asked, cost, fitted: undefined },
  );
  const current = checkedLayout(asked, question);
  const { tuned, text: edited } = await tuneFile(
    question,
    {
      file: basename(path),
      text,
      layout: current,
      notPriced: layoutSource(asked, question)?.notPriced ?? [],
    },
    {
      table: builtinOperators(),
      risk: options.risk,
      deadline: control.deadline(options.timeLimit),
      ...defined({ runs: asked.form?.runs }),
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
  { model }: Pick<TuneOptions, 'model'>,
): { readonly name: string; readonly text: string } {
  const [name, ...others] = model === undefined ? modelsOfFile(text) : [model];
  if (name !== undefined && others.length === 0) {
    const config = configOf(name);
    if (config !== undefined) return config;
    throw new ShardwrightError('E_USAGE', `--model ${name}: there is no such model`, {
      hint: 'give a name of shardwright models list, or a config.json.',
    });
  }
  const fits = [name, ...others].filter((one) => one !== undefined);
  throw new ShardwrightError(
    'E_USAGE',
    fits.length === 0
      ? `${basename(path)} names no model`
      : `the sizes in ${basename(path)} are those of ${fits.join(', ')}`,
    { hint: `give --model ${fits[0] ?? 'llama-3.1-8b'}.` },
  );
}

function write(path: string, text: string): void {
  try {
    writeFileSync(path, text);
  } catch (error) {
    throw new ShardwrightError('E_IO', `cannot write: ${messageOf(error)}`, { file: path });
  }
}
