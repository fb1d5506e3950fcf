/**
 * Lets the two ends of each message between pipeline stages agree on its placement. Stages are
 * planned in their order: what a stage receives is pinned to the placement in which the stage in
 * front sends it, and a gradient goes back as the tensor that it belongs to came. A plan that wants
 * another placement redistributes on its own mesh, inside of its own program, with its price.
 */

import { ShardwrightError, suggestion } from '../../errors.ts';
import { placeholdersByRoleName } from '../../graph/carried.ts';
import { roleName } from '../../graph/nodes.ts';
import { DTYPE_BYTES, type Graph } from '../../graph/types.ts';
import { exampleShape } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import type { StagedGraph } from '../../passes/stages/split.ts';
import type { Unnamed } from '../../passes/stages/unnamed.ts';
import type { Message, StageGraph } from '../../passes/stages/write-stage.ts';
import type { Plan } from '../../plan/record/types.ts';
import type { Pin } from '../../plan/request/request.ts';
import { product } from '../../product.ts';

/** The placements of a planned stage that others keep to. */
export interface StageEnds {
  /** Placements of values from the stage in front, by name. */
  readonly received: ReadonlyMap<string, string>;
  /** Placements of values for the stage behind, by name. */
  readonly sent: ReadonlyMap<string, string>;
  /** Placements of gradients from the stage behind, by the name of the value. */
  readonly receivedBack: ReadonlyMap<string, string>;
  /** Placements of parameters, by name. */
  readonly parameters: ReadonlyMap<string, string>;
}

/** The placements at the ends of a stage, of the plan of its program without names. */
export function endsOfPlan(stage: StageGraph, { roles, values }: Unnamed, plan: Plan): StageEnds {
  const nodes = new Map(plan.nodes.map(({ name, outputs }) => [name, itemAt(outputs, 0)]));
  const parameters = new Map(plan.parameters.map(({ name, placement }) => [name, placement]));
  const placed = (names: readonly string[]): ReadonlyMap<string, string> =>
    new Map(names.flatMap((name) => pair(name, nodes.get(values.get(name) ?? ''))));
  return {
    received: placed(stage.receives),
    sent: new Map(
      stage.sends.map(({ value, output }) => [value, itemAt(plan.outputs, output).placement]),
    ),
    receivedBack: placed(stage.receivesBack),
    parameters: new Map([...roles].flatMap(([name, role]) => pair(name, parameters.get(role)))),
  };
}

function pair(name: string, placement: string | undefined): [string, string][] {
  return placement === undefined ? [] : [[name, placement]];
}

/**
 * The pins of stage `s`: what the stage in front sends to it, and parameters that an earlier stage
 * holds too, as that stage has them.
 *
 * @param before the ends of the stages in front of it
 */
export function pinsOfStage(
  { stages, shared }: Pick<StagedGraph, 'stages' | 'shared'>,
  s: number,
  before: readonly StageEnds[],
): Pin[] {
  const { graph, receives } = itemAt(stages, s);
  const sent = before.at(-1)?.sent;
  const received = receives.flatMap((node) =>
    pair(node, sent?.get(node)).map(([name, spec]) => ({ node: name, spec })),
  );
  const placeholders = placeholdersByRoleName(graph);
  const held = shared.flatMap(({ names }): Pin[] => {
    const known = before.flatMap(({ parameters }) => names.flatMap((n) => parameters.get(n) ?? []));
    const own = names.flatMap((name) => graph.nodes[placeholders.get(name) ?? -1]?.name ?? []);
    const [spec] = known;
    return spec === undefined ? [] : own.map((node) => ({ node, spec }));
  });
  return [...received, ...held];
}

/**
 * The pins that make a stage send values in these placements, as far as gradients of them come
 * back: a value leaves in the placement in which its gradient comes.
 *
 * @param wanted placements by the names of the values
 */
export function pinsOfSends(
  { graph, sends, receivesBack }: StageGraph,
  wanted: ReadonlyMap<string, string>,
): Pin[] {
  const nodes = new Map(graph.nodes.map((node) => [node.name, node]));
  const gradients = new Map(receivesBack.map((name) => [nodes.get(name)?.meta.roleIndex, name]));
  return sends.flatMap(({ value, output }) => {
    const node = gradients.get(graph.outputs[output]?.index);
    const spec = wanted.get(value);
    return node === undefined || spec === undefined ? [] : [{ node, spec }];
  });
}

/** The pins of a request that are about a program, by the names that it has without names. */
export function pinsWithin(pins: readonly Pin[], { nodes }: Graph, { values }: Unnamed): Pin[] {
  const byRole = new Map(
    nodes.flatMap((node) => (node.kind === 'placeholder' ? [[roleName(node), node.name]] : [])),
  );
  return pins.flatMap(({ node, spec }) => {
    const name = values.get(node) ?? values.get(byRole.get(node) ?? '');
    return name === undefined ? [] : [{ node: name, spec }];
  });
}

/** @throws E_REF for a pin of what the program has not */
export function checkPins(pins: readonly Pin[], graph: Graph): void {
  const known = new Set([
    ...graph.nodes.map(({ name }) => name),
    ...placeholdersByRoleName(graph).keys(),
  ]);
  for (const { node, spec } of pins)
    if (!known.has(node))
      throw new ShardwrightError('E_REF', `--pin ${node}=${spec}: the graph has no '${node}'`, {
        hint: suggestion(node, [...known], 'nodes and parameters'),
      });
}

/** Bytes that a device sends, of the tensors in the placements that the plan gives them. */
export function messageBytes(
  messages: readonly Pick<Message, 'output'>[],
  { outputs }: Plan,
  graph: Graph,
  space: ShardingSpace,
): number {
  const types = new Map(graph.nodes.map(({ name, type }) => [name, type]));
  return messages.reduce((bytes, { output }) => {
    const { value, placement } = itemAt(outputs, output);
    const type = types.get(value);
    if (type?.kind !== 'tensor') return bytes;
    const shape = space.localShape(space.parse(placement), exampleShape(type));
    return bytes + product(shape) * DTYPE_BYTES[type.dtype];
  }, 0);
}
