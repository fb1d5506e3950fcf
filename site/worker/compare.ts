/**
 * Compares all plans of a model on all meshes of some devices, in several workers; on several
 * clusters or numbers of devices each at its best plan, side by side. In: a question. Out: the
 * report as a page, and its first lines.
 */
import {
  type AskedPoint,
  type AskedRun,
  clustersNamed,
  comparedDecision,
  comparedOptions,
  compareModel,
  type Comparison,
  comparisonReport,
  comparisonSections,
  comparisonSubtitle,
  comparisonTitle,
  Deadline,
  type DecisionRow,
  DEFAULT_RISK,
  defaultCostPreset,
  defined,
  htmlFile,
  loadCluster,
  modelEntry,
  parseBytes,
  parseCounts,
  parsePriceFlag,
  parseTokens,
  planningDecision,
  planningOf,
  type PlanningPoint,
  planningReport,
  pointOf,
  pointsOf,
  questionAsked,
  ShardwrightError,
  VERSION,
  withRun,
} from '../../src/entries/page.ts';
import type { Answers, Question } from '../protocol.ts';
import { count, table } from './model.ts';
import { optimizerOf } from './request.ts';
import type { StopSignal } from './stop-signal.ts';
import { threadCount } from './threads.ts';

export async function compare(
  question: Question,
  signal: StopSignal,
  step: (text: string) => void,
): Promise<Answers['compare']> {
  const { name, config } = modelEntry(question.model);
  const model = { name, text: JSON.stringify(config) };
  const points = askedPoints(model, question);
  const [only] = points;
  if (points.length === 1 && only !== undefined)
    return comparedAnswer(await compared(model, only, question, signal, step));
  const done: PlanningPoint[] = [];
  for (const [i, point] of points.entries()) {
    const { devices, cluster } = point.question;
    const at = `${i + 1} of ${points.length}: ${devices} devices of ${cluster}`;
    const found = await compared(model, point, question, signal, (text) =>
      step(`${at}: ${text}`),
    ).catch(stopped);
    done.push(pointOf(point.question, found));
  }
  const planning = planningOf(done);
  return {
    html: planningReport(planning, 'html', VERSION),
    first: firstOf(planningDecision(planning)),
  };
}

/** A point that was stopped before it had a plan is not done; those before it are the answer. */
function stopped(error: unknown): undefined {
  if (error instanceof ShardwrightError && error.code === 'E_INTERRUPTED') return undefined;
  throw error;
}

type Model = Parameters<typeof questionAsked>[0];

function askedPoints(model: Model, question: Question): AskedPoint[] {
  const names = [question.cluster, ...listOf(question.clusters)];
  const prices = listOf(question.price).map((text) => parsePriceFlag(text, 'price'));
  if (prices.length > 0 && question.tokens === '')
    throw new ShardwrightError('E_USAGE', 'a price is of a whole run, and no tokens are given', {
      hint: 'write for example 15T into Tokens.',
    });
  return pointsOf(
    model,
    clustersNamed(names, prices, (name) => name),
    {
      devices: parseCounts(question.devices, 'devices'),
      ...list('seq', count('sequence', question.sequence)),
      ...list('globalBatch', count('batch', question.batch)),
    },
  );
}

function list<K extends string>(key: K, value: number | undefined): Partial<Record<K, number[]>> {
  return value === undefined ? {} : ({ [key]: [value] } as Record<K, number[]>);
}

/** Words between commas or blanks. */
function listOf(text: string): string[] {
  return text.split(/[\s,]+/).filter((word) => word !== '');
}

async function compared(
  model: Model,
  { question: { devices, sequence, globalBatch }, cluster }: AskedPoint,
  asked: Question,
  signal: StopSignal,
  step: (text: string) => void,
): Promise<Comparison> {
  const swept = questionAsked(
    model,
    { devices, cluster: cluster.text, sequence, globalBatch },
    {
      risk: DEFAULT_RISK,
      ...defined({ optimizer: optimizerOf(asked) }),
      ...(asked.memory === '' ? {} : { memory: parseBytes(asked.memory, 'budget') }),
    },
    { asked: undefined, cost: defaultCostPreset(loadCluster(cluster.text)), fitted: undefined },
  );
  // Threads compute, this one waits: it looks by the clock.
  const looking = setInterval(() => signal.aborted, 200);
  const found = await compareModel(swept, {
    table: table(),
    deadline: new Deadline(undefined, { signal }),
    onProgress: step,
    threads: threadCount(),
  }).finally(() => clearInterval(looking));
  return withRun(found, swept, runOf(asked, cluster.price));
}

function runOf({ tokens }: Question, price: AskedRun['price']): AskedRun | undefined {
  return tokens === ''
    ? undefined
    : { tokens: parseTokens(tokens, 'tokens'), ...defined({ price }) };
}

function comparedAnswer(comparison: Comparison): Answers['compare'] {
  const report = comparisonReport(comparison, VERSION);
  const title = comparisonTitle(comparison);
  const decision = comparedDecision(comparison);
  const html = htmlFile({
    title,
    heading: title,
    subtitle: comparisonSubtitle(comparison),
    decision,
    options: comparedOptions(comparison),
    answer: report.answer,
    sections: comparisonSections(comparison),
    data: report,
    version: VERSION,
  });
  return { html, first: firstOf(decision) };
}

/** Labels of the rows that the page shows above its form. */
const FIRST = ['Decision', 'Step', 'Run', 'Memory', 'Nearest'];

function firstOf(rows: readonly DecisionRow[]): Answers['compare']['first'] {
  return FIRST.flatMap((label) => rows.filter((row) => row.label === label).slice(0, 1));
}
