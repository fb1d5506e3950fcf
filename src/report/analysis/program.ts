/**
 * Prints a planned program as text: each line with its placement and seconds, with the
 * redistributions of its inputs above it.
 */

import { checkKinds } from '../../arguments.ts';
import { nodesByName } from '../../graph/nodes.ts';
import { nodeText } from '../../graph/text/write.ts';
import type { Graph, Node } from '../../graph/types.ts';
import type {
  Plan,
  PlannedInside,
  PlannedNode,
  PlannedOutput,
  PlannedRedistribution,
} from '../../plan/record/types.ts';
import { bytesText, secondsText } from '../../units.ts';

/**
 * The plan as the program itself: every line of the graph with the placement of its result, its
 * seconds, and above it the redistributions that its inputs need.
 */
export function annotatedProgram(graph: Graph, plan: Plan): string {
  checkKinds('annotatedProgram', { graph: [graph, 'graph'], plan: [plan, 'plan'] });
  const planned = nodesByName(plan);
  const lines: string[] = [];
  for (const node of graph.nodes) {
    const p = planned.get(node.name);
    if (p !== undefined) lines.push(...nodeLines(node, p));
  }
  for (const output of plan.outputs) lines.push(...outputLines(output));
  return lines.join('\n');
}

/** The line of a node, after one for each redistribution of its inputs. */
export function nodeLines(node: Node, p: PlannedNode): string[] {
  const time =
    p.seconds > 0 && p.times !== 0 ? `  ${secondsText(p.seconds)}${timesText(p.times)}` : '';
  return [
    ...p.redistributions.map((r) => redistributionLine(r, p.inputs.length)),
    `${nodeText(node)}  # ${placementText(p)}${time}`,
    ...(p.inside ?? []).map((c) => insideLine(c, p.times)),
  ];
}

/** The line of an output, after one for each redistribution of it. */
export function outputLines(output: PlannedOutput): string[] {
  const moves = output.redistributions.map((r) => redistributionLine(r, 1));
  const role = output.role === 'grad' ? `gradient of ${output.of ?? '?'}` : output.role;
  if (output.role === 'carry')
    return [...moves, `next %${output.of ?? '?'} = %${output.value}  # ${output.placement}`];
  return [...moves, `return %${output.value}  # ${output.placement}  ${role}`];
}

/** A collective inside an operator; of a region, the call that it is, with its types. */
function insideLine(
  { kind, meshDims, bytes, seconds, node, from, to, type, times: share }: PlannedInside,
  times?: number,
): string {
  const cost =
    `${kind}(${meshDims.join(',')}) ${bytesText(bytes)} ` +
    `${secondsText(seconds)}${timesText(times)}${share === undefined ? '' : ' in one branch'}`;
  return node === undefined
    ? `    # inside: ${cost}`
    : `    # inside %${node}: ${from ?? '?'} -> ${to ?? '?'}  ${cost}  ${type ?? ''}`.trimEnd();
}

/** The signature of a line: everything but the names of values and the numbers of layers. */
export function lineSignature(node: Node, planned: PlannedNode): string {
  const text = nodeLines(node, planned)
    .join('\n')
    .replace(/%[\w.$-]+/g, '%');
  const withoutNumbers = (name: string): string => name.replace(/\d+/g, '*');
  const path = withoutNumbers(node.meta.path ?? '');
  const role = withoutNumbers(node.meta.roleName ?? '');
  return `${text}|${path}|${role}`.replace(/"[^"]*"/g, withoutNumbers);
}

function placementText(node: PlannedNode): string {
  const [first, ...others] = node.outputs;
  const outputs =
    first !== undefined && others.length === 0 ? first : `(${node.outputs.join(', ')})`;
  return node.inputs.length === 0 ? outputs : `${node.inputs.join(', ')} -> ${outputs}`;
}

/** Runs of a line inside a loop; a branch that counts less than once runs at most once. */
function timesText(times: number | undefined): string {
  return times === undefined || times < 1 ? '' : ` x${times}`;
}

function redistributionLine(r: PlannedRedistribution, inputs: number): string {
  const which = inputs > 1 ? `input ${r.input}: ` : '';
  if (r.copy === 'reused') return `    # ${which}${r.from} -> ${r.to}  copy made before`;
  const collectives = r.collectives
    .map(
      (c) => `${c.kind}(${c.meshDims.join(',')}) ${bytesText(c.bytes)} ${secondsText(c.seconds)}`,
    )
    .join(' + ');
  const kept = r.copy === 'made' ? '  copy kept for later uses' : '';
  const charged = r.executedSeconds === undefined ? '' : `  charged ${secondsText(r.seconds)}`;
  return (
    `    # ${which}${r.from} -> ${r.to}  ` +
    `${collectives === '' ? 'local' : collectives}${charged}${timesText(r.times)}${kept}`
  );
}
