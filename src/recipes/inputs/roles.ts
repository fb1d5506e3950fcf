/**
 * Finds the batch dim and the sequence dim of each input of a graph, unless the user states them.
 */

import { defined } from '../../defined.ts';
import { ShardwrightError, suggestion } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import { parseMesh } from '../../mesh/devices/mesh.ts';
import { ShardingSpace } from '../../mesh/sharding/space.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { plannable } from '../../passes/plannable/plannable.ts';
import type { StatedDims } from '../../plan/request/request.ts';
import { dataflow } from '../../strategy/dataflow.ts';
import { nodeStrategies } from '../../strategy/nodes.ts';
import { batchOf } from './batch.ts';
import { Indices, RuleLists } from './indices.ts';
import { type Dims, inputsOf, type InputTensor, type Program } from './program.ts';
import { sequences } from './sequence.ts';

/** The dims of an input that are the batch and the sequence; absent where it has none. */
interface InputRole {
  readonly batch?: number;
  readonly sequence?: number;
}

export type InputRoles = ReadonlyMap<number, InputRole>;

/**
 * Finds which dim of each input node is the batch and which the sequence, by what the user states
 * or the program tells.
 *
 * The batch is the index whose parts do not meet before the loss: with its dims cut on every input,
 * and parameters whole, the forward pass runs by its rules without communication and the loss is a
 * sum or mean of what the parts give. The sequence is the index over which attention mixes: it
 * reaches the rows of fused attention, or both sides of a table of scores.
 *
 * @throws E_REF for a stated name that is not an input, E_SHAPE for a dim that it does not have
 */
export function inputRoles(model: Program): InputRoles {
  const inputs = inputsOf(model);
  const rules = new RuleLists(model);
  const indices = new Indices(model, rules);
  const batch = statedOf(model, inputs, 'batch') ?? batchOf(model, rules, indices, inputs);
  const whole = batch.stated ? linked(indices, inputs, batch.dims) : batch.dims;
  const sequence =
    statedOf(model, inputs, 'sequence')?.dims ?? sequences(model, rules, inputs, whole);
  const roles = new Map<number, InputRole>();
  for (const { node } of inputs) {
    const [own, row] = [whole.get(node), sequence.get(node)];
    roles.set(node, {
      ...defined({ batch: own, sequence: row }),
    });
  }
  return roles;
}

/** The same for a graph that is not planned, on one device. */
export function graphInputRoles(
  graph: Graph,
  table: OperatorTable,
  statedDims?: StatedDims,
): InputRoles {
  const space = new ShardingSpace(parseMesh('d=1'));
  const program = plannable(graph, table);
  const flow = dataflow(program, table, true);
  const strategies = nodeStrategies(program, flow, table, space, {
    uneven: 'allow',
    unknown: 'replicate',
  });
  const roles = inputRoles({
    graph: program,
    flow,
    strategies,
    space,
    ...defined({ statedDims }),
  });
  const position = new Map(graph.nodes.map((node, n) => [node.name, n]));
  return new Map([...roles].map(([n, role]) => [position.get(program.nodes[n].name) ?? n, role]));
}

/** The user's statement; undefined where the user says nothing about this role. */
function statedOf(
  model: Program,
  inputs: readonly InputTensor[],
  role: 'batch' | 'sequence',
): Dims | undefined {
  const stated = Object.entries(model.statedDims?.[role] ?? {});
  if (stated.length === 0) return undefined;
  const dims = new Map<number, number>();
  for (const [name, dim] of stated) {
    const flag = `--${role}-dim ${name}=${dim}`;
    const found = inputs.find(({ names }) => names.includes(name));
    if (found === undefined)
      throw new ShardwrightError('E_REF', `${flag}: the graph has no input '${name}'`, {
        hint: suggestion(name, [...new Set(inputs.flatMap(({ names }) => names))], 'inputs'),
      });
    const at = dim < 0 ? dim + found.shape.length : dim;
    if (!Number.isInteger(dim) || at < 0 || at >= found.shape.length)
      throw new ShardwrightError(
        'E_SHAPE',
        `${flag}: '${name}' [${found.shape.join(', ')}] has no dim ${dim}`,
        {
          hint: `name one from 0 to ${found.shape.length - 1}.`,
        },
      );
    dims.set(found.node, at);
  }
  return { dims, stated: true };
}

/** The inputs that share an index with a stated dim are cut with it; a stated dim wins. */
function linked(
  indices: Indices,
  inputs: readonly InputTensor[],
  stated: ReadonlyMap<number, number>,
): Map<number, number> {
  const all = new Map(stated);
  const wanted = new Set([...stated].map(([node, dim]) => indices.of(valueOf(inputs, node), dim)));
  for (const { node, value, shape } of inputs) {
    const dim = shape.findIndex((size, d) => size > 1 && wanted.has(indices.of(value, d)));
    if (dim >= 0 && !all.has(node)) all.set(node, dim);
  }
  return all;
}

function valueOf(inputs: readonly InputTensor[], node: number): number {
  return inputs.find((input) => input.node === node)?.value ?? -1;
}
