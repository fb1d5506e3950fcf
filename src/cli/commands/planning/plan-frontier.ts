/** `plan --frontier`: time against memory, each point a plan. */

import { join } from 'node:path';

import { usableMemoryBytes } from '../../../cost/hardware/cluster.ts';
import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import { ShardwrightError } from '../../../errors.ts';
import type { Graph } from '../../../graph/types.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import type { LeastCostResult } from '../../../plan/choice/result.ts';
import {
  type Frontier,
  FRONTIER_POINTS,
  type FrontierStep,
  memoryFrontier,
} from '../../../plan/questions/memory-frontier.ts';
import type { Deadline } from '../../../plan/request/deadline.ts';
import { gapUnderMemory, isGapGiven, type PlanRequest } from '../../../plan/request/request.ts';
import { settingLines } from '../../../report/model/settings.ts';
import type { Progress } from '../../../solver/types.ts';
import {
  bytesText,
  excessOver,
  lineText,
  percentText,
  secondsText,
  tableText,
} from '../../../units.ts';
import { longName } from '../../input/flags/flag.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import { writeFolder } from '../../output/write-file.ts';
import type { PlanOptions } from './flags.ts';

export const FRONTIER_FILE = 'frontier.json';

/**
 * The parts of the command `plan` that this one uses: how a plan folder is written, and how the
 * solver's progress is printed.
 */
interface FrontierTools {
  readonly writePlan: (
    folder: string,
    result: Extract<LeastCostResult, { status: 'planned' }>,
  ) => void;
  readonly onProgress: (event: Progress) => void;
  readonly deadline: Deadline;
  /** Is told that the frontier has something to answer with from now on. */
  readonly answers: () => void;
}

/** Flags that ask for something about one plan. */
const ALONE = ['recipe', 'range', 'pp', 'emitIlp', 'emit', 'program', 'overlap'] as const;

/** @throws E_USAGE for a flag that says nothing about a frontier */
export function checkFrontierFlags(
  options: Readonly<Partial<Record<(typeof ALONE)[number], unknown>>>,
): void {
  const flag = ALONE.find((name) => options[name] !== undefined && options[name] !== false);
  if (flag !== undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `--frontier makes several plans, ${longName(flag)} is of one`,
      {
        hint: 'write the plans with -o DIR, and ask about one of them.',
      },
    );
}

export async function frontierCommand(
  graph: Graph,
  table: OperatorTable,
  request: PlanRequest,
  options: Pick<PlanOptions, 'frontier' | 'output' | 'json' | 'quiet'>,
  io: CliIo,
  tools: FrontierTools,
): Promise<number> {
  const points = typeof options.frontier === 'number' ? options.frontier : FRONTIER_POINTS;
  const frontier = await memoryFrontier(graph, request, {
    table,
    points,
    onProgress: tools.onProgress,
    deadline: tools.deadline,
    onPrepared: tools.answers,
    onBudget: (step) => {
      if (options.quiet !== true) io.stderr(`${stepText(step)}\n`);
    },
  });
  const record = frontierRecord(frontier, graph.name, request);
  answer(io, options, record, () => frontierText(frontier, graph, request));
  const { output } = options;
  if (output !== undefined) {
    frontier.points.forEach(({ result }, i) => tools.writePlan(join(output, `${i + 1}`), result));
    writeFolder(output, [[FRONTIER_FILE, `${JSON.stringify(record, null, 1)}\n`]], 'frontier');
    if (options.json !== true && frontier.points.length > 0)
      io.stdout(`wrote ${output}/1 to ${output}/${frontier.points.length}, and ${FRONTIER_FILE}\n`);
  }
  const isInterrupted = tools.deadline.isInterrupted && frontier.points.length < points;
  if (isInterrupted)
    io.stderr(`interrupted: ${frontier.points.length} of ${points} points were found\n`);
  if (frontier.points.length === 0)
    return frontier.misses.some((m) => m.status === 'infeasible') ? EXIT.infeasible : EXIT.gap;
  const worst = Math.max(...frontier.points.map((p) => p.gap));
  const asked = gapUnderMemory(request);
  if (worst <= asked) return isInterrupted ? EXIT.gap : EXIT.ok;
  if (options.json !== true)
    io.stderr(
      `stopped at gaps of up to ${percentText(worst)}, asked for ${percentText(asked)} (--gap)\n`,
    );
  return EXIT.gap;
}

function stepText({
  asked,
  points,
  wanted,
  budgetBytes,
  seconds,
  peakBytes,
}: FrontierStep): string {
  const answer =
    seconds === undefined || peakBytes === undefined
      ? 'no plan'
      : `${secondsText(seconds)}, peak ${bytesText(peakBytes)}`;
  return `budget ${asked}: ${bytesText(budgetBytes)}  ${answer}  ${points} of ${wanted} points`;
}

/** The frontier without its plans. */
function frontierRecord(frontier: Frontier, model: string, request: PlanRequest): object {
  const { points, knee, neededBytes, misses, asked } = frontier;
  return {
    model,
    mesh: request.mesh,
    cluster: points[0]?.result.plan.cluster ?? null,
    points: points.map(({ result, ...point }) => ({ ...point, status: result.plan.proof.status })),
    knee: knee ?? null,
    neededBytes: neededBytes ?? null,
    misses,
    asked,
  };
}

function frontierText(frontier: Frontier, graph: Graph, request: PlanRequest): string {
  const { points, knee, neededBytes, misses } = frontier;
  const budgetBytes = usableMemoryBytes(loadCluster(request.cluster), request);
  const settings = settingLines({
    graph,
    request,
    budgetBytes,
    gap: gapUnderMemory(request),
    gapGiven: isGapGiven(request),
  });
  const lines = [
    `time against memory: ${lineText(graph.name)} on ${request.mesh}`,
    ...settings,
    '',
  ];
  const [first] = points;
  if (first !== undefined) {
    const fastest = first.seconds;
    const rows = points.map((p, i) => [
      `${i + 1}`,
      bytesText(p.peakBytes),
      secondsText(p.seconds),
      i === 0 ? '' : `+${percentText(excessOver(fastest, p.seconds))}`,
      secondsText(p.boundSeconds),
      percentText(p.gap),
      p.recomputedNodes === 0 ? '' : `${p.recomputedNodes} in ${secondsText(p.recomputeSeconds)}`,
      p.peakNode,
      i === knee ? 'knee' : '',
    ]);
    const head = ['', 'peak', 'step', 'slower', 'bound', 'gap', 'recomputed', 'at the peak', ''];
    lines.push(tableText([head, ...rows], [0, 1, 2, 3, 4, 5]));
  }
  const conflict = misses.find((m) => m.conflict !== undefined)?.conflict;
  if (points.length === 0 && neededBytes === undefined && conflict !== undefined)
    lines.push(`no plan exists: ${conflict.join(' contradicts ')}`);
  if (neededBytes !== undefined)
    lines.push('', `proven: no plan takes less than ${bytesText(neededBytes)}`);
  // Above the last point every budget has a plan, whether or not its own search found one.
  const least = points.at(-1)?.peakBytes ?? Infinity;
  const open = misses
    .filter(
      (m) =>
        m.status === 'not found' && m.budgetBytes < least && m.budgetBytes >= (neededBytes ?? 0),
    )
    .map((m) => bytesText(m.budgetBytes));
  if (open.length > 0) lines.push(`nothing found, and nothing ruled out, at ${open.join(', ')}`);
  return lines.join('\n');
}
