/**
 * Applies pins, given as `NODE=SPEC` texts or by the source, to the domains of a model, or refuses
 * them with the nearest choice.
 */
import { ShardwrightError, suggestion } from '../../errors.ts';
import { placeholdersByRoleName } from '../../graph/carried.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { isRef } from '../../graph/value.ts';
import type { ShardingSpace } from '../../mesh/sharding/space.ts';
import { withoutTrivialDims } from '../../mesh/sharding/trivial-dims.ts';
import { isPartitionSpec } from '../../mesh/views/partition-spec.ts';
import { parseNamed } from '../../notations/einshard/on-mesh.ts';
import { isEinshard } from '../../notations/einshard/syntax.ts';
import type { Model } from '../model/model.ts';
import type { Pin, PlanRequest } from '../request/request.ts';
import type { GivenPins } from './given-pins.ts';
import { whyNotOffered } from './pin-reasons.ts';
import { Restriction } from './restriction.ts';

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
 * @throws E_REF for a node that does not exist, E_PIN for one that is not a tensor, and for a
 *   sharding that it has no strategy for, with the reason
 */
function applyPins(model: Model, restriction: Restriction, pins: readonly Pin[]): void {
  const { graph, space, flow } = model;
  const roleNames = placeholdersByRoleName(graph);
  for (const pin of pins) {
    const flag = `--pin ${pin.node}=${pin.spec}`;
    const name = flow.byName.has(pin.node)
      ? pin.node
      : graph.nodes[roleNames.get(pin.node) ?? -1]?.name;
    if (name === undefined) {
      const known = [...flow.byName.keys(), ...roleNames.keys()];
      throw new ShardwrightError('E_REF', `${flag}: the graph has no '${pin.node}'`, {
        hint: suggestion(pin.node, known, 'nodes and parameters'),
      });
    }
    refuseNoTensor(graph, graph.nodes[flow.byName.get(name)!], pin);
    const value = flow.valueOf(name);
    const { shape } = flow.values[value].meta;
    const wanted = shardingId(space, pin.spec, shape, flag);
    const refused = pinValue(model, restriction, value, wanted, flag);
    if (refused !== undefined)
      throw new ShardwrightError(
        'E_PIN',
        `${flag}: '${pin.node}' [${shape.join(', ')}] cannot be ${space.text(wanted)}: ` +
          `${refused.why}`,
        {
          node: name,
          hint:
            'it can be ' +
            `${refused.offered.slice(0, 24).join(' ')}${refused.offered.length > 24 ? ' ...' : ''}`,
        },
      );
  }
}

/**
 * Leaves the producer of a value only what gives it the wanted sharding; where nothing does, why,
 * and what it can be.
 */
function pinValue(
  model: Model,
  restriction: Restriction,
  value: number,
  wanted: number,
  reason: string,
): { readonly why: string; readonly offered: readonly string[] } | undefined {
  const { flow, space, nodeVariable, strategies } = model;
  const { node, result } = flow.values[value];
  const { set } = strategies.nodes[node]!;
  const width = set.inputCount + set.outputCount;
  const specOf = (a: number): number => set.specs[a * width + set.inputCount + result];
  const offered = new Set(Array.from({ length: set.count }, (_, a) => specOf(a)));
  if (!offered.has(wanted))
    return {
      why: whyNotOffered(model, value, wanted),
      offered: Array.from(offered, (id) => space.text(id)),
    };
  restriction.keep(nodeVariable[node], reason, (a) => specOf(a) === wanted);
  return undefined;
}

/** Only tensors are placed. Of a call with several results each has its own name. */
function refuseNoTensor(graph: Graph, { name, type: { kind } }: Node, pin: Pin): void {
  if (kind === 'tensor') return;
  const isResult = ({ target, args: [of] }: Node): boolean =>
    target === 'operator.getitem' && of !== undefined && isRef(of) && of.name === name;
  const results = graph.nodes.filter(isResult).map((node) => `--pin ${node.name}=${pin.spec}`);
  throw new ShardwrightError(
    'E_PIN',
    `--pin ${pin.node}=${pin.spec}: '${pin.node}' is not a tensor, but a ${kind} value`,
    {
      node: name,
      hint: results.length === 0 ? 'pin a tensor.' : `pin its results: ${results.join(' ')}`,
    },
  );
}

/**
 * Adds the shardings that the program states. What cannot be a pin is not a fault of the request:
 * it is left free and said.
 *
 * @returns one sentence for each that is left free
 */
function applyGiven(model: Model, restriction: Restriction, given: GivenPins): string[] {
  const { flow, space } = model;
  const free = [...given.skipped];
  const refuse = (what: string, spec: string, why: string): void =>
    void free.push(`${what} is ${spec} in the source, which is not pinned: ${why}.`);
  for (const { node, spec } of given.pins) {
    const index = flow.byName.get(node);
    const value =
      index === undefined
        ? -1
        : flow.alias[index] >= 0
          ? flow.alias[index]
          : (flow.results[index][0] ?? -1);
    if (value < 0) {
      refuse(`%${node}`, spec, 'the plan has no such tensor');
      continue;
    }
    const wanted = shardingId(space, spec, flow.values[value].meta.shape, `%${node}=${spec}`);
    const refused = pinValue(model, restriction, value, wanted, `%${node}=${spec} of the program`);
    if (refused !== undefined) refuse(`%${node}`, spec, refused.why);
  }
  for (const { output, spec } of given.outputs) {
    const use = model.uses.find(({ at }) => at.kind === 'output' && at.output === output);
    if (use === undefined) {
      refuse(`Output ${output}`, spec, 'the plan has no such tensor');
      continue;
    }
    const { specs, map } = use.demands;
    const wanted = shardingId(
      space,
      spec,
      flow.values[use.value].meta.shape,
      `output ${output}=${spec}`,
    );
    if (!map.some((demand) => specs[demand] === wanted)) {
      refuse(`Output ${output}`, spec, 'outputs are not offered so');
      continue;
    }
    restriction.keep(
      use.variable,
      `output ${output}=${spec} of the program`,
      (a) => specs[map[a]] === wanted,
    );
  }
  return free;
}

/** The part of a model that a request and the shardings of its program leave. */
export function restrictionOf(
  model: Model,
  {
    pins,
    inputs,
    outputs,
    shardings,
  }: Pick<PlanRequest, 'pins' | 'inputs' | 'outputs' | 'shardings'>,
  given: GivenPins,
): { readonly restriction: Restriction; readonly unpinned: readonly string[] } {
  const restriction = new Restriction(model);
  applyPins(model, restriction, pins);
  applyInputOutput(model, restriction, inputs, outputs);
  return {
    restriction,
    unpinned: shardings === 'ignore' ? [] : applyGiven(model, restriction, given),
  };
}

/**
 * Id of a sharding text of a tensor, in placements (`S(0)R`), in einshard (`a b -> a8 b 8`) or as a
 * PartitionSpec (`P("dp", None)`). Errors name the flag in place of a column, because columns are
 * those of the model's text here.
 */
function shardingId(
  space: ShardingSpace,
  text: string,
  shape: readonly number[],
  flag: string,
): number {
  try {
    const stated = parseNamed(text, space.mesh, shape) ?? space.get(space.parse(text));
    return space.intern(withoutTrivialDims(stated, space.mesh));
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    const { hint } = error.details;
    throw new ShardwrightError(
      error.code,
      `${flag}: ${error.message}`,
      hint === undefined ? {} : { hint },
    );
  }
}

/** A text that can only be read with the shape of a tensor. */
function namesDims(text: string): boolean {
  return isEinshard(text) || isPartitionSpec(text);
}

/** Requires one sharding of all inputs (or all outputs); 'free' requires nothing. */
function applyInputOutput(
  model: Model,
  restriction: Restriction,
  inputs: string,
  outputs: string,
): void {
  const { graph, space, flow, strategies, nodeVariable } = model;
  if (inputs !== 'free') {
    // A text that is wrong for every tensor is refused even if there is no input.
    if (!namesDims(inputs)) shardingId(space, inputs, [], '--inputs');
    graph.nodes.forEach((node, n) => {
      if (node.kind !== 'placeholder' || node.meta.role !== 'input') return;
      const wanted = shardingId(
        space,
        inputs,
        flow.values[flow.results[n][0]].meta.shape,
        `--inputs (${node.name})`,
      );
      const { set } = strategies.nodes[n]!;
      restriction.keep(nodeVariable[n], `--inputs ${inputs}`, (a) => set.specs[a] === wanted);
    });
  }
  if (outputs === 'free') return;
  if (!namesDims(outputs)) shardingId(space, outputs, [], '--outputs');
  for (const use of model.uses) {
    if (use.at.kind !== 'output' || flow.outputs[use.at.output].output.role !== 'output') continue;
    const wanted = shardingId(space, outputs, flow.values[use.value].meta.shape, '--outputs');
    const { specs, map } = use.demands;
    restriction.keep(use.variable, `--outputs ${outputs}`, (a) => specs[map[a]] === wanted);
  }
}
