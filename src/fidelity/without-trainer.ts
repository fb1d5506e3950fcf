/**
 * The range of measured runs that `compare --layout` states if no trainer is named: takes runs,
 * gives the seconds that the software of the default trainer would take. Whoever ran them often had
 * another one, so errors of these predictions are the range of an answer whose trainer was assumed.
 */
import { ShardwrightError } from '../errors.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { softwareInFp8, type SweepQuestion } from '../sweep/model/question.ts';
import { RunPredictor, sharingPrograms } from './predict-run.ts';
import type { MeasuredRun } from './runs.ts';
import { questionForTrainer } from './trainer-step.ts';

/** Predicted seconds by run; runs that cannot be asked so are left out. */
export async function secondsWithoutTrainer(
  runs: readonly MeasuredRun[],
  table: OperatorTable,
): Promise<ReadonlyMap<string, number>> {
  const seconds = new Map<string, number>();
  for (const list of sharingPrograms(runs)) {
    const predictor = new RunPredictor(table, { asking: askedWithoutTrainer });
    for (const run of list) {
      const found = await predictor.predict(run);
      if (!('reason' in found)) seconds.set(run.id, found.seconds);
    }
  }
  return seconds;
}

/**
 * The question for a run as it is asked by those who say nothing of its trainer: with products in
 * fp8 where the run has them, because `--fp8` asks for that.
 *
 * @throws E_USAGE for narrower products, which no flag asks for
 */
function askedWithoutTrainer(question: SweepQuestion, { system }: MeasuredRun): SweepQuestion {
  const { software: _, ...bare } = question;
  const asked = questionForTrainer(bare);
  const unit = system.matmulUnit;
  if (unit === 'bf16' || unit === 'fp16') return asked;
  if (unit === 'fp8') return { ...asked, software: softwareInFp8(asked, undefined, '--fp8') };
  throw new ShardwrightError('E_USAGE', `no flag asks for products in ${unit}`);
}
