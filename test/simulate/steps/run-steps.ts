import type { Graph, Node, Output } from '../../../src/graph/types.ts';
import { lower, type LowerablePlan, plannedProgram } from '../../../src/lower/lower.ts';
import type { DeviceProgram } from '../../../src/lower/program/program.ts';
import { flat, fromFlat, type NDArray } from '../../../src/ndarray/array.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { drawInputs } from '../../../src/simulate/inputs.ts';
import { runDevices } from '../../../src/simulate/ranks/devices.ts';
import { layOut, putTogether } from '../../../src/simulate/ranks/laid-out.ts';
import { TABLE } from '../../plan/support.ts';

/**
 * Runs two steps of training by a plan on virtual devices, where each device keeps only its own
 * values between the steps, and gives the differences from one device. The next step reads the
 * results of a whole train step; the parameters of a joint graph take a step of SGD from the shards
 * of the gradients that the plan returns. Nothing here asks the planner which input an output
 * belongs to.
 */
export interface Steps {
  /** Outputs of all steps that were compared, and the tensors that entered the second step. */
  readonly compared: number;
  /** Inputs of the second step that came from the first. */
  readonly carried: number;
  readonly faults: readonly string[];
}

const RATE = 0.05;
const TOLERANCE = 1e-8;

export function runTwoSteps(given: Graph, plan: LowerablePlan, seed = 0): Steps {
  const { program: graph } = plannedProgram(given, plan, TABLE);
  const program = lower(graph, plan, { table: TABLE });
  const inputs = graph.nodes.filter((node) => node.kind === 'placeholder');
  const faults: string[] = [];
  let compared = 0;
  let whole = tiedEqual(graph, inputs, drawInputs(TABLE, graph, seed));
  let parts = inputs.map((node, i) => layOut(program.space, shardingOf(program, node), whole[i]));
  let carried = 0;
  const compare = (
    what: string,
    want: NDArray,
    sharding: number,
    byRank: readonly NDArray[],
  ): void => {
    const { data, disagreement } = putTogether(program.space, sharding, want.shape, byRank);
    const values = flat(want);
    const scale = values.reduce((m, v) => (Number.isFinite(v) ? Math.max(m, Math.abs(v)) : m), 1);
    let off = disagreement;
    values.forEach(
      (v, i) =>
        (off = Math.max(off, Object.is(v, data[i]) || v === data[i] ? 0 : Math.abs(v - data[i]))),
    );
    compared++;
    if (!(off / scale <= TOLERANCE))
      faults.push(`${what} (${program.space.text(sharding)}) is off by ${off}`);
  };
  for (const step of [1, 2]) {
    const one = evaluateGraph(TABLE, graph, whole, { seed }).outputs as NDArray[];
    const many = runDevices(TABLE, program, parts, { seed }).outputs;
    graph.outputs.forEach((output, k) => {
      const byRank = many[k];
      if (output.value !== null && byRank !== null)
        compare(`step ${step}, ${textOf(output)}`, one[k], program.outputs[k]!, byRank);
    });
    if (step === 2 || faults.length > 0) break;
    const next = inputs.map((node, i) => after(graph, node, i, whole, parts, one, many));
    carried = next.filter(({ moved }) => moved).length;
    whole = next.map((n) => n.whole);
    parts = next.map((n) => n.parts);
    inputs.forEach((node, i) => {
      const fits = layOut(program.space, shardingOf(program, node), whole[i]);
      const same = fits.every((part, rank) => part.shape.join() === parts[i][rank].shape.join());
      if (same) compare(`${node.name} of step 2`, whole[i], shardingOf(program, node), parts[i]);
      else
        faults.push(
          `step 2 reads ${node.name} as ${shapes(fits)}, step 1 leaves ${shapes(parts[i])}`,
        );
    });
    if (faults.length > 0) break;
  }
  return { compared, carried, faults };
}

/**
 * An input of the next step: what the step returned for it, or itself after a step of SGD, or
 * itself.
 */
function after(
  graph: Graph,
  node: Node,
  i: number,
  whole: readonly NDArray[],
  parts: readonly (readonly NDArray[])[],
  one: readonly NDArray[],
  many: readonly (readonly NDArray[] | null)[],
): { whole: NDArray; parts: NDArray[]; moved: boolean } {
  const { role, roleName, stateName } = node.meta;
  const name = roleName ?? '';
  const names = (graph.ties ?? []).find(
    (group) => role === 'parameter' && group.includes(name),
  ) ?? [name];
  const at = (kind: Output['role']): number =>
    graph.outputs.findIndex(
      (o) =>
        o.role === kind &&
        o.value !== null &&
        (kind === 'newstate'
          ? o.of === roleName && o.stateName === stateName
          : names.includes(o.of ?? '')),
    );
  const replaced =
    role === 'state' ? at('newstate') : role === 'tangent' || role === 'arg' ? -1 : at('mutation');
  if (replaced >= 0) return { whole: one[replaced], parts: [...many[replaced]!], moved: true };
  const gradient = role === 'parameter' ? at('grad') : -1;
  if (gradient < 0) return { whole: whole[i], parts: [...parts[i]], moved: false };
  const byRank = many[gradient]!;
  return {
    whole: minus(whole[i], one[gradient]),
    parts: parts[i].map((part, rank) => minus(part, byRank[rank])),
    moved: true,
  };
}

/** A step of SGD on what one device holds: element by element, whatever the two stand for. */
function minus(parameter: NDArray, gradient: NDArray): NDArray {
  if (parameter.shape.join() !== gradient.shape.join())
    throw new Error(
      `a device holds ${parameter.shape.join('x')} of a parameter and ${gradient.shape.join('x')} of its gradient`,
    );
  const g = flat(gradient);
  return fromFlat(
    parameter.shape,
    flat(parameter).map((v, e) => v - RATE * g[e]),
    parameter.dtype,
  );
}

/** Names of one tensor start from the same numbers. */
function tiedEqual(graph: Graph, inputs: readonly Node[], drawn: readonly NDArray[]): NDArray[] {
  const position = new Map(
    inputs.map((node, i) => [node.meta.role === 'parameter' ? node.meta.roleName : node.name, i]),
  );
  const out = [...drawn];
  for (const [owner, ...others] of graph.ties ?? [])
    for (const other of others) out[position.get(other)!] = out[position.get(owner)!];
  return out;
}

function shardingOf({ values, space }: DeviceProgram, node: Node): number {
  return values.find((v) => v.name === node.name && !v.inBody)?.sharding ?? space.replicated;
}

function textOf({ role, of, stateName, index }: Output): string {
  return [role, of ?? index, stateName].filter((word) => word !== undefined).join(' ');
}

const shapes = (parts: readonly NDArray[]): string =>
  parts.map((part) => `[${part.shape.join()}]`).join(' ');
