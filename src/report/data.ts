import type { Cluster } from '../cost/cluster.ts';
import { ShardwrightError } from '../errors.ts';
import { DTYPE_BYTES, type Graph } from '../graph/types.ts';
import { parseMesh } from '../mesh/mesh.ts';
import { ShardingSpace } from '../mesh/space.ts';
import { sumCollectives, termsOf, type CollectiveSum } from '../plan/diff.ts';
import type { Plan } from '../plan/types.ts';
import type { RecipeResult } from '../zoo/compare.ts';
import { planCommandLine } from './command.ts';
import { constantsOf, type Constant } from './constants.ts';
import { foldParameters } from './parameters.ts';
import { bytesText, countText, percentText, secondsText } from './units.ts';

/** What a report says, before it is HTML, Markdown, JSON or CSV: all four print these numbers and texts. */
export interface Report {
  readonly schema: 'shardwright.report/1';
  readonly versions: { readonly shardwright: string; readonly plan: number };
  /** Makes the plan again from the folder's graph. */
  readonly command: string;
  readonly model: string;
  readonly mesh: Plan['mesh'];
  readonly cluster: Cluster;
  /** The answer, one line each. */
  readonly answer: readonly { readonly label: string; readonly text: string }[];
  /** The plan; its clock time is in `run`. */
  readonly plan: Plan;
  readonly parameters: readonly ReportParameter[];
  /** The step time by term, dearest first; the terms sum to it. */
  readonly terms: readonly { readonly term: string; readonly seconds: number }[];
  readonly collectives: readonly (CollectiveSum & { readonly groupSize: number; readonly hosts: number })[];
  readonly operators: readonly OperatorSum[];
  /** The plain recipes on the same problem; null where they were not asked for or the graph is not there. */
  readonly zoo: readonly ReportRecipe[] | null;
  readonly constants: readonly Constant[];
  readonly assumptions: readonly string[];
  /** What this report leaves out and why. */
  readonly missing: readonly string[];
  /** The only clock times. */
  readonly run: { readonly solveSeconds: number | null };
}

export interface ReportParameter {
  readonly name: string;
  readonly count: number;
  readonly shape: readonly number[];
  readonly placement: string;
  /** Bytes of one of them on the device with the largest shard; null where the graph is not there. */
  readonly localBytes: number | null;
}

/** All nodes of one operator. */
export interface OperatorSum {
  readonly target: string;
  readonly count: number;
  readonly computeSeconds: number;
  /** Redistributions of their inputs, and collectives inside them. */
  readonly communicationSeconds: number;
}

export interface ReportRecipe {
  readonly name: string;
  readonly seconds: number | null;
  readonly peakBytes: number | null;
  readonly reason: string;
}

export interface ReportInput {
  readonly plan: Plan;
  readonly cluster: Cluster;
  readonly graph?: Graph;
  readonly recipes?: readonly RecipeResult[];
  /** Why recipes are not there. */
  readonly withoutRecipes?: string;
  readonly version: string;
}

/** Gathers what a report says about a plan. */
export function reportOf(input: ReportInput): Report {
  const { plan, cluster, graph } = input;
  const zoo = input.recipes?.map(recipeRow) ?? null;
  const missing = [
    'Memory over time and activations: the plan holds states only.',
    'Pipeline stages: the plan has none.',
    ...(zoo === null ? [`Plain recipes: ${input.withoutRecipes ?? 'not priced'}.`] : []),
    ...(graph === undefined ? ['The program: the graph is not beside the plan.'] : []),
  ];
  return {
    schema: 'shardwright.report/1',
    versions: { shardwright: input.version, plan: plan.version },
    command: planCommandLine(plan.request),
    model: plan.model,
    mesh: plan.mesh,
    cluster,
    answer: answerOf(plan, zoo),
    plan: { ...plan, proof: { ...plan.proof, solveSeconds: null } },
    parameters: parametersOf(plan, graph),
    terms: [...termsOf(plan)]
      .filter(([, seconds]) => seconds !== 0)
      .map(([term, seconds]) => ({ term, seconds }))
      .sort((a, b) => b.seconds - a.seconds || (a.term < b.term ? -1 : 1)),
    collectives: sumCollectives(plan).map((c) => ({ ...c, ...groupOf(plan, c.axes, cluster) })),
    operators: operatorsOf(plan),
    zoo,
    constants: constantsOf(cluster),
    assumptions: plan.assumptions,
    missing,
    run: { solveSeconds: plan.proof.solveSeconds },
  };
}

/** Terms that people read: what rounding leaves is in the JSON, and below every printed digit. */
export function visibleTerms(report: Report): Report['terms'] {
  const { seconds } = report.plan.objective;
  return report.terms.filter((t) => Math.abs(t.seconds) > 1e-9 * seconds);
}

function answerOf(plan: Plan, zoo: readonly ReportRecipe[] | null): Report['answer'] {
  const { objective, memory, proof } = plan;
  const { seconds, computeSeconds, communicationSeconds } = objective;
  const share = (part: number): string => (seconds > 0 ? percentText(part / seconds) : '0 %');
  const devices = plan.mesh.reduce((n, d) => n * d.size, 1);
  const where = plan.mesh.map(
    (d) => `${d.name}=${d.size} ${d.hosts === 1 ? 'inside a host' : `across ${d.hosts} hosts`}`,
  );
  const fits = memory.peakBytes <= memory.budgetBytes;
  const bound = computeSeconds >= communicationSeconds ? 'compute' : 'communication';
  return [
    {
      label: 'Memory',
      text: `${fits ? 'fits' : 'does not fit'}: ${bytesText(memory.peakBytes)} of ${bytesText(memory.budgetBytes)} per device (parameters ${bytesText(memory.parameterBytes)}, gradients ${bytesText(memory.gradientBytes)}, optimizer ${bytesText(memory.optimizerBytes)}; activations ${memory.activationBytes === null ? 'not modelled' : bytesText(memory.activationBytes)})`,
    },
    {
      label: 'Step time',
      text: `${secondsText(seconds)}: compute ${secondsText(computeSeconds)} (${share(computeSeconds)}), communication ${secondsText(communicationSeconds)} (${share(communicationSeconds)}), no overlap; bound by ${bound}`,
    },
    { label: 'Devices', text: `${countText(devices)} of ${plan.cluster}: ${where.join(', ')}` },
    {
      label: 'Proof',
      text: `${proof.status === 'optimal' ? 'optimal, nothing is cheaper' : `${proof.status}: no plan is below ${secondsText(proof.bound)} (gap ${percentText(proof.gap)})`}; solved by ${proof.solver}, re-costed from the plan alone at ${secondsText(proof.recheckedSeconds)}`,
    },
    { label: 'Against', text: againstText(plan, zoo) },
  ];
}

function againstText(plan: Plan, zoo: readonly ReportRecipe[] | null): string {
  const more = (seconds: number): string => slowerText(seconds, plan.objective.seconds);
  const parts: string[] = [];
  const priced = (zoo ?? []).flatMap((r) => (r.seconds === null ? [] : [{ name: r.name, seconds: r.seconds }]));
  const [best] = [...priced].sort((a, b) => a.seconds - b.seconds);
  if (best !== undefined)
    parts.push(`best plain recipe ${best.name} ${secondsText(best.seconds)} (${more(best.seconds)})`);
  else parts.push(zoo === null ? 'plain recipes were not priced' : 'no plain recipe fits');
  parts.push(
    plan.greedySeconds === null
      ? 'greedy propagation finds no plan'
      : `greedy propagation ${secondsText(plan.greedySeconds)} (${more(plan.greedySeconds)})`,
  );
  return parts.join('; ');
}

/** How much slower than the plan: `+16.4 %`. A plan with pins may be the slower one, and then it says so. */
export function slowerText(seconds: number, planSeconds: number): string {
  const more = planSeconds > 0 ? seconds / planSeconds - 1 : 0;
  return `${more < 0 ? '-' : '+'}${percentText(Math.abs(more))}`;
}

function recipeRow(r: RecipeResult): ReportRecipe {
  if (r.status === 'refused') return { name: r.name, seconds: null, peakBytes: null, reason: r.reason };
  return { name: r.name, seconds: r.seconds, peakBytes: r.peakBytes, reason: '' };
}

function parametersOf(plan: Plan, graph: Graph | undefined): ReportParameter[] {
  const itemBytes = new Map<string, number>();
  for (const node of graph?.nodes ?? [])
    if (node.kind === 'placeholder' && node.meta.role === 'parameter' && node.type.kind === 'tensor')
      itemBytes.set(node.meta.roleName ?? node.name, DTYPE_BYTES[node.type.dtype]);
  const space = new ShardingSpace(parseMesh(plan.request.mesh));
  const rows = new Map<string, number | null>();
  for (const p of plan.parameters) {
    const bytes = itemBytes.get(p.name);
    const local = placedShape(space, p.placement, p.shape, p.name);
    rows.set(p.name, bytes === undefined ? null : local.reduce((n, size) => n * size, bytes));
  }
  const first = new Map(plan.parameters.map((p) => [`${p.shape.join()}|${p.placement}|${fold(p.name)}`, p.name]));
  return foldParameters(plan).map((row) => {
    const name = first.get(`${row.shape.join()}|${row.placement}|${fold(row.name)}`);
    return { ...row, localBytes: name === undefined ? null : (rows.get(name) ?? null) };
  });
}

function fold(name: string): string {
  return name.replace(/(^|[._])\d+(?=[._]|$)/g, '$1*');
}

/** @throws E_PLAN for a placement that is none of the mesh: the file was edited */
function placedShape(
  space: ShardingSpace,
  placement: string,
  shape: readonly number[],
  name: string,
): readonly number[] {
  try {
    return space.localShape(space.parse(placement), shape);
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    throw new ShardwrightError('E_PLAN', `parameter '${name}' is placed ${placement}: ${error.message}`);
  }
}

function operatorsOf(plan: Plan): OperatorSum[] {
  const sums = new Map<
    string,
    { target: string; count: number; computeSeconds: number; communicationSeconds: number }
  >();
  for (const node of plan.nodes) {
    const times = node.times ?? 1;
    let sum = sums.get(node.target);
    if (sum === undefined)
      sums.set(node.target, (sum = { target: node.target, count: 0, computeSeconds: 0, communicationSeconds: 0 }));
    sum.count++;
    sum.computeSeconds += node.seconds * times;
    sum.communicationSeconds += (node.internalSeconds ?? 0) * times;
    for (const r of node.redistributions) sum.communicationSeconds += r.seconds * (r.times ?? 1);
  }
  let returned = 0;
  for (const output of plan.outputs) for (const r of output.redistributions) returned += r.seconds * (r.times ?? 1);
  if (returned > 0)
    sums.set('return', {
      target: 'return',
      count: plan.outputs.length,
      computeSeconds: 0,
      communicationSeconds: returned,
    });
  const total = (s: OperatorSum): number => s.computeSeconds + s.communicationSeconds;
  return [...sums.values()]
    .filter((s) => total(s) > 0)
    .sort((a, b) => total(b) - total(a) || (a.target < b.target ? -1 : 1));
}

/** Devices in a group of these mesh dims, and the hosts that it touches (devices are row-major, hosts whole runs of them). */
function groupOf(plan: Plan, axes: string, cluster: Cluster): { groupSize: number; hosts: number } {
  const taking = new Set(axes.split(','));
  let ids = [0];
  let stride = 1;
  for (const dim of [...plan.mesh].reverse()) {
    if (taking.has(dim.name)) {
      const step = stride;
      ids = Array.from({ length: dim.size }, (_, k) => k).flatMap((k) => ids.map((id) => id + k * step));
    }
    stride *= dim.size;
  }
  return { groupSize: ids.length, hosts: new Set(ids.map((id) => Math.floor(id / cluster.devicesPerHost))).size };
}
