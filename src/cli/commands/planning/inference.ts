/** `inference`: takes a model and devices and prints the layouts that serve it. */

import { defined } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import { inferenceText } from '../../../report/text/inference.ts';
import { inference } from '../../../sweep/inference/inference.ts';
import type { InferenceQuestion, ServingSizes } from '../../../sweep/inference/question.ts';
import { clusterText } from '../../input/cluster-file.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import { paintScreen } from '../../output/paint.ts';
import { configOf } from './compare-model.ts';
import type { InferenceOptions } from './flags.ts';

/** Prints the layouts that serve a model; exit 3 where none fits. */
export async function inferenceCommand(
  model: string,
  options: InferenceOptions,
  io: CliIo,
): Promise<number> {
  const config = configOf(model);
  if (config === undefined)
    throw new ShardwrightError('E_USAGE', `there is no model '${model}'`, {
      hint: 'give a name of shardwright models list, or a config.json.',
    });
  const { prompt, generate: generated, weights, kvCache: cache, devices } = options;
  const found = await inference(
    {
      model: config.name,
      config: config.text,
      devices,
      cluster: clusterText(options.cluster, {}),
      prompt,
      generated,
      weights,
      cache,
      ...asked(options),
    },
    builtinOperators(),
    options.quiet === true ? undefined : io.progress,
  );
  answer(io, options, found, (a) => inferenceText(a, options.verbose === true), paintScreen);
  return found.best === null ? EXIT.infeasible : EXIT.ok;
}

/** The parts of the question that flags state. */
function asked(options: InferenceOptions): Partial<InferenceQuestion> {
  const { requests, firstToken, eachToken, layout, memory, headroom, price } = options;
  return defined({
    requests,
    firstTokenSeconds: firstToken,
    outputTokenSeconds: eachToken,
    layout: layout === undefined ? undefined : layoutOf(layout),
    memoryBytes: memory,
    headroom,
    price,
  });
}

/** Reads `tp=4,pp=2`. @throws E_USAGE */
function layoutOf(text: string): Partial<ServingSizes> {
  const sizes: Partial<Record<keyof ServingSizes, number>> = {};
  for (const part of text.split(',')) {
    const [, name, size] = /^\s*(dp|pp|tp|ep)\s*=\s*([1-9]\d{0,5})\s*$/.exec(part) ?? [];
    if (name === undefined)
      throw new ShardwrightError('E_USAGE', `--layout '${text}': '${part}' is no size`, {
        hint: 'give dp, pp, tp and ep with their sizes, such as tp=4,pp=2.',
      });
    sizes[name as keyof ServingSizes] = Number(size);
  }
  return sizes;
}
