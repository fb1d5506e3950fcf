/**
 * `compare --sweep questions.yaml -o FOLDER`: asks every question of a file, keeps each answer in a
 * file of its own, and goes on from those that are there. Answers do not depend on which machine
 * gave them, or in what order.
 */

import { existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { basename, dirname, isAbsolute, join } from 'node:path';

import { parsePrice } from '../../../cost/hardware/operation.ts';
import { defined } from '../../../defined.ts';
import { messageOf, ShardwrightError } from '../../../errors.ts';
import { Deadline } from '../../../plan/request/deadline.ts';
import { readFileText } from '../../../platform/read-file.ts';
import type { Comparison } from '../../../recipes/compare/comparison.ts';
import { asComparison } from '../../../report/model/comparison-schema.ts';
import { parsePlans } from '../../../sweep/plan-names.ts';
import { type AskedPoint, pointsOf } from '../../../sweep/planning/asked-points.ts';
import { planningOf, type PlanningPoint, pointOf } from '../../../sweep/planning/planning.ts';
import { parseQuestions, type SweepQuestions } from '../../../sweep/planning/questions.ts';
import { VERSION } from '../../../version.ts';
import { parseTokens } from '../../input/flags/read.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import type { RunControl } from '../../thread/run-control.ts';
import { configOf } from './compare-model.ts';
import { askedClusters, askPoint, goalFlag, printPlanning } from './compare-points.ts';
import type { CompareOptions } from './flags.ts';

type Config = NonNullable<ReturnType<typeof configOf>>;

/** A question of the file, with the flags that it replaces. */
interface Task {
  readonly id: string;
  readonly config: Config;
  readonly asked: AskedPoint;
  readonly options: CompareOptions;
}

/** Every question of a file. @throws E_INPUT, E_USAGE, E_CLUSTER */
function tasksOf(questions: SweepQuestions, folder: string, options: CompareOptions): Task[] {
  const beside = (name: string): string =>
    name.endsWith('.json') && !isAbsolute(name) ? join(folder, name) : name;
  const { clusters, devices, sequences, globalBatches, tokens, plans } = questions;
  // A slice is one of questions here, not of meshes.
  const { slice: _, ...whole } = options;
  const asked: CompareOptions = {
    ...whole,
    cluster: clusters.map(
      (c) => `${beside(c.name)}${'devices' in c && c.devices !== undefined ? `:${c.devices}` : ''}`,
    ),
    price: clusters.flatMap((c) =>
      'price' in c && c.price !== undefined ? (parsePrice(c.price) ?? []) : [],
    ),
    ...defined({ devices, seq: sequences, globalBatch: globalBatches }),
    ...(tokens === undefined ? {} : { tokens: parseTokens(String(tokens), 'tokens') }),
    ...defined({ plans }),
  };
  // Wrong plan names are refused before any question is asked.
  parsePlans(asked.plans);
  return questions.models.flatMap((model) => {
    const config = configOf(beside(model));
    if (config === undefined)
      throw new ShardwrightError('E_INPUT', `models: '${model}' is not a model by name or config`, {
        hint: 'shardwright models list names them.',
      });
    return pointsOf(config, askedClusters(asked), asked).map((point): Task => {
      const { cluster, devices: n, sequence, globalBatch } = point.question;
      const id = [config.name, cluster, n, sequence, globalBatch]
        .join('--')
        .replace(/[^\w.-]/g, '_');
      return { id, config, asked: point, options: asked };
    });
  });
}

/** Answers `compare --sweep`: a comparison for every point of a file, each kept in a folder. */
export async function compareSweep(
  path: string,
  options: CompareOptions,
  io: CliIo,
  control: RunControl,
): Promise<number> {
  const { output, slice } = options;
  const single = options.like !== undefined ? '--like' : goalFlag(options);
  if (single !== undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `${single} is for questions about one model, and --sweep asks about several`,
      { hint: 'name one model.' },
    );
  if (output === undefined)
    throw new ShardwrightError('E_USAGE', '--sweep needs a folder for its answers', {
      hint: `--sweep ${path} -o answers`,
    });
  const questions = parseQuestions(
    readFileText(path, { what: 'file of questions', hint: 'docs/planning.md shows one.' }),
    path,
  );
  const all = distinctTasks(questions, path, options);
  if (options.list) {
    listTasks(all, output, options, io);
    return EXIT.ok;
  }
  const tasks = slice === undefined ? all : all.filter((_, i) => i % slice.count === slice.index);
  const whole = control.deadline(options.timeLimit);
  makeFolder(output);
  const sweep = new SweepRun(output, whole, questions.timeLimitSeconds, options, io, control);
  for (const [i, task] of tasks.entries()) await sweep.ask(task, `${i + 1} of ${tasks.length}`);
  const { points, asked } = sweep;
  const planning = planningOf(points);
  const name =
    slice === undefined ? 'planning.json' : `planning-${slice.index + 1}-of-${slice.count}.json`;
  writeAnswer(join(output, name), planning);
  printPlanning(planning, options, io);
  io.stderr(`${asked} asked, ${tasks.length - asked} answered before; answers: ${output}\n`);
  const open = points.filter((p) => p.stopped !== undefined).length;
  if (open > 0)
    io.stderr(
      `${whole.cause}: ${open} of ${points.length} questions are not done; the same command ` +
        'goes on\n',
    );
  return open > 0 ? EXIT.gap : EXIT.ok;
}

/** The questions of a file. @throws E_INPUT for one that is asked twice */
function distinctTasks(questions: SweepQuestions, path: string, options: CompareOptions): Task[] {
  const all = tasksOf(questions, dirname(path), options);
  const twice = all.find(({ id }, i) => all.findIndex((t) => t.id === id) < i);
  if (twice !== undefined)
    throw new ShardwrightError('E_INPUT', `${twice.id} is asked twice`, {
      file: path,
      hint: 'name each cluster and model once.',
    });
  return all;
}

/** `--list`: the questions, and which are answered. */
function listTasks(
  tasks: readonly Task[],
  output: string,
  options: CompareOptions,
  io: CliIo,
): void {
  const listed = tasks.map(({ id, ...task }) => ({
    id,
    answered: readAnswer(join(output, `${id}.json`), keyOf(task)) !== undefined,
  }));
  answer(io, options, listed, (rows) =>
    rows.map(({ id, answered }) => `${id}${answered ? '  answered' : ''}`).join('\n'),
  );
}

/** Asks question by question; an answer that is in the folder is not asked for again. */
class SweepRun {
  readonly points: PlanningPoint[] = [];
  /** Questions that had no answer. */
  asked = 0;

  constructor(
    private readonly folder: string,
    private readonly whole: Deadline,
    private readonly limitSeconds: number | undefined,
    private readonly options: CompareOptions,
    private readonly io: CliIo,
    private readonly control: RunControl,
  ) {}

  async ask(task: Task, place: string): Promise<void> {
    const file = join(this.folder, `${task.id}.json`);
    const key = keyOf(task);
    let comparison = readAnswer(file, key);
    if (comparison === undefined && !this.whole.isOver) {
      comparison = await this.fresh(task, `${place}: ${task.id}`);
      // An answer that is not whole is asked again.
      if (comparison !== undefined && comparison.stopped === undefined)
        writeAnswer(file, { ...key, comparison });
    }
    // A fresh answer is read through the schema, so that its keys are in the order of an answer
    // from disk.
    const read =
      comparison === undefined
        ? undefined
        : asComparison(JSON.parse(JSON.stringify(comparison)), file);
    this.points.push(pointOf(task.asked.question, read));
  }

  private fresh(task: Task, at: string): Promise<Comparison | undefined> {
    const { whole, limitSeconds, io } = this;
    this.asked++;
    io.progress(at);
    const deadline =
      limitSeconds === undefined || limitSeconds > whole.leftSeconds
        ? whole
        : new Deadline(limitSeconds, { signal: whole.signal });
    return askPoint(task.config, task.asked, task.options, {
      deadline,
      onPlan: this.control.answers,
      whatIf: false,
      ...(this.options.quiet === true
        ? {}
        : { onProgress: (line: string) => io.progress(`${at}: ${line}`) }),
    });
  }
}

/** The key under which an answer is kept. */
function keyOf({ asked, config, options }: Omit<Task, 'id'>): object {
  return {
    version: VERSION,
    ...asked.question,
    cluster: asked.cluster.text,
    config: config.text,
    settings: settingsOf(options),
  };
}

/** Flags that change an answer. */
const SETTINGS = [
  'cost',
  'for',
  'framework',
  'compiled',
  'fp8',
  'dtype',
  'padVocab',
  'memory',
  'headroom',
  'risk',
  'optimizer',
  'gradients',
  'tokens',
  'plans',
  'price',
  'carbon',
] as const satisfies readonly (keyof CompareOptions)[];

function settingsOf(options: CompareOptions): object {
  return Object.fromEntries(SETTINGS.map((key) => [key, options[key]]));
}

/**
 * The answer in a file, undefined where there is none. @throws E_USAGE for the answer of another
 * question
 */
function readAnswer(file: string, key: object): Comparison | undefined {
  if (!existsSync(file)) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(readFileText(file));
  } catch {
    // A file that was cut off is written again.
    return undefined;
  }
  if (typeof value !== 'object' || value === null || !('comparison' in value)) return undefined;
  const { comparison, ...asked } = value;
  if (JSON.stringify(asked) === JSON.stringify(key)) return asComparison(comparison, file);
  throw new ShardwrightError(
    'E_USAGE',
    'the file answers another question, or is of another version',
    {
      file,
      hint: 'give another folder to -o, or delete the file.',
    },
  );
}

function makeFolder(path: string): void {
  try {
    mkdirSync(path, { recursive: true });
  } catch (error) {
    throw new ShardwrightError('E_IO', `cannot make the folder: ${messageOf(error)}`, {
      file: path,
    });
  }
}

/** The file is written under another name and renamed, so that it is whole or absent. */
function writeAnswer(file: string, value: object): void {
  const beside = join(dirname(file), `.${basename(file)}.part`);
  try {
    writeFileSync(beside, `${JSON.stringify(value)}\n`);
    renameSync(beside, file);
  } catch (error) {
    throw new ShardwrightError('E_IO', `cannot write: ${messageOf(error)}`, { file });
  }
}
