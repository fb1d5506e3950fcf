/**
 * `explain`: takes a written plan and a node and prints the alternatives and, with `--force`, what
 * other placements would cost, one on top of another.
 */

import { ShardwrightError } from '../../../errors.ts';
import { stepOfOther } from '../../../fidelity/trainer-step.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import { explainNode, type NodeExplanation, reopen } from '../../../plan/questions/explain.ts';
import { pinText } from '../../../plan/questions/what-if.ts';
import { type PlanChange, WhatIfHistory } from '../../../plan/questions/what-if-history.ts';
import { EXPORTED, type PlanAnswer, planAnswer } from '../../../plan/record/answer.ts';
import type { Plan } from '../../../plan/record/types.ts';
import type { Pin } from '../../../plan/request/request.ts';
import { explanationText, forcedText, togetherLines } from '../../../report/text/explain.ts';
import { differenceText, secondsText } from '../../../units.ts';
import { checked, wholePlan } from '../../input/plan-folder.ts';
import { reportInfeasible } from '../../output/infeasible.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import { progressPrinter } from '../../output/progress.ts';
import type { ExplainOptions } from './flags.ts';

/**
 * The record that `explain --json` prints; its keys are a contract. `attribution`, `changedNodes`
 * and `forced` are of all `--force` together against the plan, `steps` of each on top of those
 * before it; without `--force` they are empty or absent. The keys of a step are those of the plan.
 */
export type ExplainResult = NodeExplanation &
  PlanAnswer & {
    readonly attribution: PlanChange['attribution'];
    readonly changedNodes: readonly string[];
    readonly forced?: ForcedResult;
    readonly steps?: readonly (ForcedResult & { readonly node: string })[];
  };

interface ForcedResult {
  readonly spec: string;
  /** The step with that placement; null where the plan has none, or its trainer does not run it. */
  readonly stepSeconds: number | null;
  readonly globalSeconds: number;
  readonly seconds: number;
  readonly status: string;
  readonly changes: readonly string[];
}

export async function explainCommand(
  path: string,
  node: string,
  options: ExplainOptions,
  io: CliIo,
): Promise<number> {
  const { limit } = options;
  const folder = wholePlan(path);
  const { plan, program, request } = folder;
  const table = builtinOperators();
  const check = checked(folder, path, table, io);
  const opened = check === undefined ? reopen(plan, program, request, table) : { plan, ...check };
  const found = explainNode(opened, node);
  const history = new WhatIfHistory(opened);
  const onProgress = progressPrinter(io, options.quiet === true);
  for (const pin of options.force.map((given) => forcedPin(given, node))) {
    const result = await history.ask(pin.node, pin.spec, { onProgress }).catch((error: unknown) => {
      throw namingForce(error, node);
    });
    if ('status' in result)
      return reportInfeasible(result, opened.prepared, io, options.json === true);
  }
  const stepOf = (forced: PlanChange): number | null =>
    stepOfOther(opened.prepared, plan, forced.plan)?.stepSeconds ?? null;
  if (options.json === true)
    io.stdout(`${JSON.stringify({ ...resultOf(found, history, stepOf), ...planAnswer(plan) })}\n`);
  else {
    const parts = [explanationText(found, limit), ...forceLines(history, limit)];
    const step = stepText(plan, history.asked.length === 0 ? null : stepOf(history.together));
    io.stdout(`${[...(step === undefined ? [] : [step]), ...parts].join('\n\n')}\n`);
  }
  return EXIT.ok;
}

/** `SPEC` of the node that is explained, or `NODE=SPEC`: a name holds no brackets and no blanks. */
function forcedPin(given: string, node: string): Pin {
  const [, other = node, spec = given] = /^([^()\s=]+)=(.+)$/s.exec(given) ?? [];
  return { node: other, spec };
}

/** `step time  90.9 ms, run by megatron; as forced 92.7 ms (+1.98 %)`. */
function stepText({ step }: Plan, forced: number | null): string | undefined {
  if (step === undefined) return undefined;
  const { trainer, stepSeconds } = step;
  const by = trainer === EXPORTED ? 'simulated' : `run by ${trainer}`;
  const change =
    forced === null
      ? ''
      : `; as forced ${secondsText(forced)} (${differenceText(forced / stepSeconds - 1)})`;
  return `step time  ${secondsText(stepSeconds)}, ${by}${change}`;
}

type StepOf = (forced: PlanChange) => number | null;

function resultOf(
  found: NodeExplanation,
  history: WhatIfHistory,
  stepOf: StepOf,
): Omit<ExplainResult, keyof PlanAnswer> {
  const { asked } = history;
  const last = asked.at(-1);
  if (last === undefined) return { ...found, attribution: [], changedNodes: [] };
  const { together } = history;
  return {
    ...found,
    attribution: together.attribution,
    changedNodes: together.changedNodes,
    forced: forcedResult(last.pin.spec, together, stepOf),
    steps: asked.map(({ pin, forced }) => ({
      node: pin.node,
      ...forcedResult(pin.spec, forced, stepOf),
    })),
  };
}

function forcedResult(spec: string, forced: PlanChange, stepOf: StepOf): ForcedResult {
  const { globalSeconds, plan, changes } = forced;
  const { objective, proof } = plan;
  const stepSeconds = stepOf(forced);
  const { seconds } = objective;
  return { spec, stepSeconds, globalSeconds, seconds, status: proof.status, changes };
}

function forceLines(history: WhatIfHistory, limit: number): string[] {
  const { asked } = history;
  return [
    ...asked.map(({ pin, forced }) =>
      forcedText(forced, limit, asked.length > 1 ? pinText(pin) : pin.spec),
    ),
    ...togetherLines(history),
  ];
}

/** A forced placement is a pin inside; the message names the flag that was given. */
function namingForce(error: unknown, node: string): unknown {
  if (!(error instanceof ShardwrightError) || !error.message.startsWith('--pin ')) return error;
  const pin = error.message.slice('--pin '.length);
  const given = pin.startsWith(`${node}=`) ? pin.slice(node.length + 1) : pin;
  return new ShardwrightError(error.code, `--force ${given}`, error.details);
}
