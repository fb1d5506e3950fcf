/** Words the settings of a plan: what was asked, and what is a default. */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import { defaultOptimizer, gradientDtype, stateBytes } from '../../cost/memory/state-bytes.ts';
import { defaultCostPreset } from '../../cost/presets/presets.ts';
import { roleName } from '../../graph/nodes.ts';
import type { DType, Graph } from '../../graph/types.ts';
import { trainedParameters } from '../../plan/model/state-memory.ts';
import { EXPORTED } from '../../plan/record/answer.ts';
import { DEFAULT_REQUEST, holdsPeak, type PlanRequest } from '../../plan/request/request.ts';
import { bytesText, countedText, percentText, secondsText } from '../../units.ts';

/** The settings that a plan was made with. */
interface SettingsInput {
  readonly graph: Graph;
  /** The request as the user gave it: a field that is absent here has its default. */
  readonly request: PlanRequest;
  /** Bytes per device. */
  readonly budgetBytes: number;
  /** Relative gap that is good enough. */
  readonly gap: number;
  /** True if somebody asked for that gap. */
  readonly gapGiven: boolean;
}

/** The settings of a plan as one line of what was asked and one of what is a default. */
export function settingLines(input: SettingsInput): string[] {
  return settingRows(input).map(({ label, words }) => `${label.padEnd(11)}${words.join('; ')}`);
}

/** The settings of a request, with defaults marked; a row that has nothing to say is left out. */
export function settingRows(
  input: SettingsInput,
): { readonly label: 'asked' | 'defaults'; readonly words: readonly string[] }[] {
  const { request, gap, gapGiven } = input;
  const asked: string[] = [];
  const defaults: string[] = [];
  const put = (given: boolean, text: string): void => void (given ? asked : defaults).push(text);
  put(gapGiven, `gap ${gap === 0 ? '0' : percentText(gap)}`);
  put(request.optimizer !== undefined, optimizerText(input));
  const cluster = loadCluster(request.cluster);
  put(
    request.memoryBytes !== undefined || request.headroom !== undefined,
    budgetText(input, cluster),
  );
  const { checkpoint, activations } = request;
  if (checkpoint !== undefined && checkpoint !== 'none')
    asked.push(
      `checkpoint ${typeof checkpoint === 'number' ? percentText(checkpoint) : checkpoint}`,
    );
  if (activations !== undefined && stepLimited(input) === undefined)
    asked.push(`activations ${activations}`);
  if (request.recipe !== undefined) asked.push(`recipe ${request.recipe}`);
  if (request.overlap === true) asked.push('overlap');
  const usual = defaultCostPreset(cluster);
  put(request.cost !== undefined && request.cost !== usual, `cost ${request.cost ?? usual}`);
  put(request.solver !== DEFAULT_REQUEST.solver, `solver ${request.solver}`);
  if (request.timeLimitSeconds !== undefined)
    asked.push(`time limit ${secondsText(request.timeLimitSeconds)}`);
  const rows = [
    { label: 'asked', words: asked },
    { label: 'defaults', words: defaults },
  ] as const;
  return rows.filter(({ words }) => words.length > 0);
}

/** The trainer whose step the budget limits; undefined where it limits the plan's own bytes. */
function stepLimited({ request }: SettingsInput): string | undefined {
  const { trainer, activations } = request;
  const isRun = trainer !== undefined && trainer !== EXPORTED && activations === 'trainer';
  return isRun ? trainer : undefined;
}

/** The budget, what of a device is held back, and what it limits. */
function budgetText(input: SettingsInput, { memoryBytes, reservedBytes }: Cluster): string {
  const { request, budgetBytes } = input;
  const trainer = stepLimited(input);
  const what =
    trainer !== undefined
      ? `for the step of ${trainer}`
      : holdsPeak(request)
        ? 'for peak memory'
        : 'for states alone';
  if (request.memoryBytes !== undefined)
    return `budget ${bytesText(budgetBytes)} per device ${what}`;
  const headroom = percentText(request.headroom ?? reservedBytes / memoryBytes);
  return (
    `budget ${bytesText(budgetBytes)} ${what}, the ${bytesText(memoryBytes)} of a device less ` +
    `${headroom} headroom`
  );
}

/**
 * The optimizer by the dtype of the weights, with the bytes that a trained parameter keeps for the
 * whole step.
 */
function optimizerText({ graph, request }: SettingsInput): string {
  const { trained, tied } = trainedParameters(graph);
  const dtypes = new Set<DType>();
  for (const { kind, type, name, meta } of graph.nodes) {
    const own = roleName({ name, meta });
    if (
      kind === 'placeholder' &&
      meta.role === 'parameter' &&
      type.kind === 'tensor' &&
      trained.has(own) &&
      !tied.has(own)
    )
      dtypes.add(type.dtype);
  }
  const states = graph.nodes.filter(
    ({ kind, meta }) => kind === 'placeholder' && meta.role === 'state',
  ).length;
  if (states > 0)
    return `optimizer of the program, ${countedText(states, 'state')} among its inputs`;
  if (dtypes.size === 0)
    return request.optimizer === undefined
      ? 'no optimizer, no gradient is returned'
      : `optimizer ${request.optimizer} without state, no gradient is returned`;
  const words = [...dtypes].sort().map((dtype) => {
    const optimizer = request.optimizer ?? defaultOptimizer(dtype);
    const {
      parameter,
      gradient,
      optimizer: state,
    } = stateBytes(optimizer, dtype, gradientDtype(request.gradients, dtype));
    const kept = request.gradients === undefined ? '' : `, gradients kept in ${request.gradients}`;
    return {
      optimizer,
      bytes: `${parameter + gradient + state} bytes a parameter in ${dtype}${kept}`,
    };
  });
  return words.map(({ optimizer, bytes }) => `optimizer ${optimizer}, ${bytes}`).join(' and ');
}
