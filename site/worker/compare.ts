/**
 * Compares all plans of a model on all meshes of some devices, in several workers. In: a question.
 * Out: the report as a page.
 */
import {
  comparedDecision,
  comparedOptions,
  compareModel,
  comparisonReport,
  comparisonSections,
  comparisonSubtitle,
  comparisonTitle,
  Deadline,
  defaultCostPreset,
  htmlFile,
  loadCluster,
  modelEntry,
  parseBytes,
  parseModelConfig,
  questionForTrainer,
  ShardwrightError,
  VERSION,
} from '../../src/entries/page.ts';
import type { Answers, Question } from '../protocol.ts';
import { table } from './model.ts';
import type { StopSignal } from './stop-signal.ts';
import { threadCount } from './threads.ts';

const SEQUENCE = 4096;

export async function compare(
  question: Question,
  signal: StopSignal,
  step: (text: string) => void,
): Promise<Answers['compare']> {
  const entry = modelEntry(question.model);
  const config = JSON.stringify(entry.config);
  const devices = whole(question.devices, 'devices');
  const { positions } = parseModelConfig(config).architecture.shape;
  // Threads compute, this one waits: it looks by the clock.
  const looking = setInterval(() => signal.aborted, 200);
  const comparison = await compareModel(
    questionForTrainer({
      model: entry.name,
      config,
      devices,
      cluster: question.cluster,
      sequence:
        question.sequence === ''
          ? Math.min(SEQUENCE, positions ?? SEQUENCE)
          : whole(question.sequence, 'sequence'),
      globalBatch: question.batch === '' ? devices : whole(question.batch, 'batch'),
      cost: defaultCostPreset(loadCluster(question.cluster)),
      ...(question.memory === '' ? {} : { memoryBytes: parseBytes(question.memory, 'budget') }),
    }),
    {
      table: table(),
      deadline: new Deadline(undefined, { signal }),
      onProgress: step,
      threads: threadCount(),
    },
  ).finally(() => clearInterval(looking));
  const report = comparisonReport(comparison, VERSION);
  const title = comparisonTitle(comparison);
  return {
    html: htmlFile({
      title,
      heading: title,
      subtitle: comparisonSubtitle(comparison),
      decision: comparedDecision(comparison),
      options: comparedOptions(comparison),
      answer: report.answer,
      sections: comparisonSections(comparison),
      data: report,
      version: VERSION,
    }),
  };
}

function whole(text: string, what: string): number {
  const value = Number(text);
  if (text.trim() !== '' && Number.isSafeInteger(value) && value > 0) return value;
  throw new ShardwrightError('E_USAGE', `${what}: '${text}' is not a whole number of 1 or more`);
}
