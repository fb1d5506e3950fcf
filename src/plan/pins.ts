import { ShardwrightError, suggestion } from '../errors.ts';
import { placeholdersByRoleName } from '../graph/carried.ts';
import { einshardOnMesh } from '../mesh/einshard/on-mesh.ts';
import { isEinshard } from '../mesh/einshard/syntax.ts';
import type { ShardingSpace } from '../mesh/space.ts';
import type { Model } from './model.ts';
import { whyNotOffered } from './pin-reasons.ts';
import type { Pin } from './request.ts';
import type { Restriction } from './restriction.ts';

/** Parses `NODE=SPEC`. */
export function parsePin(text: string): Pin {
  const equals = text.indexOf('=');
  if (equals <= 0 || equals === text.length - 1)
    throw new ShardwrightError('E_USAGE', `--pin '${text}' is not NODE=SPEC`, {
      hint: "write for example --pin 'lm_head.weight=S(0)R'.",
    });
  return { node: text.slice(0, equals), spec: text.slice(equals + 1) };
}

/**
 * Adds the user's pins to a restriction.
 *
 * @throws E_REF for a node that does not exist, E_PIN for a sharding that the node has no strategy for, with the reason
 */
export function applyPins(model: Model, restriction: Restriction, pins: readonly Pin[]): void {
  const { graph, space, flow } = model;
  const roleNames = placeholdersByRoleName(graph);
  for (const pin of pins) {
    const name = flow.byName.has(pin.node) ? pin.node : graph.nodes[roleNames.get(pin.node) ?? -1]?.name;
    if (name === undefined) {
      const known = [...flow.byName.keys(), ...roleNames.keys()];
      throw new ShardwrightError('E_REF', `--pin ${pin.node}=${pin.spec}: the graph has no '${pin.node}'`, {
        hint: suggestion(pin.node, known, 'nodes and parameters'),
      });
    }
    const value = flow.values[flow.valueOf(name)];
    const wanted = shardingId(space, pin.spec, value.meta.shape, `--pin ${pin.node}=${pin.spec}`);
    const { set } = model.strategies.nodes[value.node]!;
    const width = set.inputCount + set.outputCount;
    const column = set.inputCount + value.result;
    const specOf = (a: number): number => set.specs[a * width + column];
    let offered = false;
    for (let a = 0; a < set.count && !offered; a++) offered = specOf(a) === wanted;
    if (!offered) {
      const list = [...new Set(Array.from({ length: set.count }, (_, a) => specOf(a)))].map((id) => space.text(id));
      const size = `[${value.meta.shape.join(', ')}]`;
      const flag = `--pin ${pin.node}=${pin.spec}`;
      const why = whyNotOffered(model, flow.valueOf(name), wanted);
      throw new ShardwrightError('E_PIN', `${flag}: '${pin.node}' ${size} cannot be ${space.text(wanted)}: ${why}`, {
        node: name,
        hint: `it can be ${list.slice(0, 24).join(' ')}${list.length > 24 ? ' ...' : ''}`,
      });
    }
    restriction.keep(model.nodeVariable[value.node], `--pin ${pin.node}=${pin.spec}`, (a) => specOf(a) === wanted);
  }
}

/**
 * Id of a sharding text of a tensor, in placements (`S(0)R`) or in einshard (`a b -> a8 b 8`). Errors name the flag in
 * place of a column, because columns are those of the model's text here.
 */
function shardingId(space: ShardingSpace, text: string, shape: readonly number[], flag: string): number {
  try {
    return isEinshard(text) ? space.intern(einshardOnMesh(text, space.mesh, shape)) : space.parse(text);
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    const { hint } = error.details;
    throw new ShardwrightError(error.code, `${flag}: ${error.message}`, hint === undefined ? {} : { hint });
  }
}

/** Requires one sharding of all inputs (or all outputs); 'free' requires nothing. */
export function applyInputOutput(model: Model, restriction: Restriction, inputs: string, outputs: string): void {
  const { graph, space, flow, strategies, nodeVariable } = model;
  if (inputs !== 'free') {
    // A text that is wrong for every tensor is refused even if there is no input.
    if (!isEinshard(inputs)) shardingId(space, inputs, [], '--inputs');
    graph.nodes.forEach((node, n) => {
      if (node.kind !== 'placeholder' || node.meta.role !== 'input') return;
      const wanted = shardingId(space, inputs, flow.values[flow.results[n][0]].meta.shape, `--inputs (${node.name})`);
      const { set } = strategies.nodes[n]!;
      restriction.keep(nodeVariable[n], `--inputs ${inputs}`, (a) => set.specs[a] === wanted);
    });
  }
  if (outputs === 'free') return;
  if (!isEinshard(outputs)) shardingId(space, outputs, [], '--outputs');
  for (const use of model.uses) {
    if (use.at.kind !== 'output' || flow.outputs[use.at.output].output.role !== 'output') continue;
    const wanted = shardingId(space, outputs, flow.values[use.value].meta.shape, '--outputs');
    const { specs, map } = use.demands;
    restriction.keep(use.variable, `--outputs ${outputs}`, (a) => specs[map[a]] === wanted);
  }
}
