/** Turns a graph that returns new states in addition to its results into a training step. */

import { ShardwrightError } from '../../errors.ts';
import { ownersOfOutputs } from '../../graph/carried.ts';
import { roleName, typesByName } from '../../graph/nodes.ts';
import type { Graph, Node, Output } from '../../graph/types.ts';
import { sameType, typeText } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import { countedText } from '../../units.ts';

/**
 * Turns a graph that returns new values in addition to its results into a training step: outputs
 * in a row replace the first inputs, as in `(parameters, states, data) -> (parameters, states,
 * loss)`, or with the loss first, the forms of a functional train step in JAX. Outputs and inputs
 * are paired in order for as long as their types are equal; what the program itself says to be
 * replaced (donated inputs) stays so.
 *
 * @throws E_TYPE where no output has the type of the first input
 */
export function asTrainStep(graph: Graph): Graph {
  const { inputs, outputs } = openOf(graph);
  const { from, count } = pairsInOrder(graph, inputs, outputs);
  const isDonated = outputs.length < graph.outputs.length;
  if (count === 0) {
    if (!isDonated) throw unpaired(graph);
    const note = '--train-step: the program says itself which outputs replace inputs.';
    return { ...graph, notes: [...(graph.notes ?? []), note] };
  }
  const replaced = new Map(
    outputs.slice(from, from + count).map((output, k) => [output, roleName(itemAt(inputs, k))]),
  );
  const note =
    `--train-step: ${from === 0 ? 'the first ' : ''}${countedText(count, 'output')}` +
    `${from === 0 ? '' : ` behind the first ${from === 1 ? 'one' : from}`} replace the first ` +
    `${countedText(count, isDonated ? 'other input' : 'input')} and are placed as they are.`;
  return {
    ...graph,
    outputs: graph.outputs.map((output): Output => {
      const of = replaced.get(output);
      return of === undefined ? output : { value: output.value, role: 'mutation', of };
    }),
    notes: [...(graph.notes ?? []), note],
  };
}

/**
 * Takes the outputs of a program that returns gradients as its results, as `jax.value_and_grad`
 * does: those in a row that have the types of the parameters, in their order. Parameters are the
 * inputs of that role; where there is none, the first inputs. Undefined where the types say that
 * nothing is a gradient.
 */
export function withReturnedGradients(graph: Graph): Graph | undefined {
  const { inputs, outputs } = openOf(graph);
  const named = inputs.filter(({ meta }) => meta.role === 'parameter');
  const parameters = named.length > 0 ? named : inputs;
  const { from, count } = pairsInOrder(graph, parameters, outputs);
  if (count === 0 || (named.length > 0 && count < named.length)) return undefined;
  const gradients = new Map(
    outputs.slice(from, from + count).map((output, k) => [output, roleName(itemAt(parameters, k))]),
  );
  const trained = new Set(parameters.slice(0, count));
  return {
    ...graph,
    nodes: graph.nodes.map((node) =>
      trained.has(node) ? { ...node, meta: { ...node.meta, role: 'parameter' } } : node,
    ),
    outputs: graph.outputs.map((output): Output => {
      const of = gradients.get(output);
      return of === undefined ? output : { value: output.value, role: 'grad', of };
    }),
    notes: [
      ...(graph.notes ?? []),
      `${countedText(count, 'output')} with the types of the parameters, in their order, ` +
        `${count === 1 ? 'is its gradient' : 'are their gradients'}.`,
    ],
  };
}

function unpaired(graph: Graph): ShardwrightError {
  const input = graph.nodes.find((node) => node.kind === 'placeholder');
  const first = graph.nodes.find((node) => node.name === graph.outputs[0]?.value);
  const [returned, taken] = [first, input].map((node) =>
    node === undefined ? 'nothing' : `'${node.name}', ${typeText(node.type)}`,
  );
  return new ShardwrightError(
    'E_TYPE',
    `--train-step: the first output is ${returned}, the first input ${taken}`,
    {
      hint:
        'a train step returns its new parameters and states in the order in which it takes ' +
        'them, behind or before its loss',
    },
  );
}

/** Asks for `--train-step` where most inputs come back with their types, in their order. */
export function trainStepNotes(graph: Graph): string[] {
  const { inputs, outputs } = openOf(graph);
  const { from, count } = pairsInOrder(graph, inputs, outputs);
  if (from > 0 || count < 2 || count < inputs.length / 2) return [];
  if (outputs.length < graph.outputs.length) return [];
  return [
    `The first ${count} outputs have the types of the first ${count} inputs, as the new ` +
      'values of a train step have: --train-step places each as the input that it replaces.',
  ];
}

/** Inputs that the program does not replace, and outputs that are results so far. */
function openOf(graph: Graph): {
  readonly inputs: readonly Node[];
  readonly outputs: readonly Output[];
} {
  const ownerOf = ownersOfOutputs(graph);
  const replaced = new Set(
    graph.outputs.map((output) => (output.role === 'output' ? undefined : ownerOf(output))),
  );
  return {
    inputs: graph.nodes.filter(
      ({ kind, meta }, n) => kind === 'placeholder' && meta.role !== 'constant' && !replaced.has(n),
    ),
    outputs: graph.outputs.filter(({ role }) => role === 'output'),
  };
}

/** The longest row of outputs that have the types of the first inputs; the first of equal rows. */
function pairsInOrder(
  graph: Graph,
  inputs: readonly Node[],
  outputs: readonly Output[],
): { readonly from: number; readonly count: number } {
  const types = typesByName(graph);
  let best = { from: 0, count: 0 };
  for (let from = 0; from + best.count < outputs.length; from++) {
    let count = 0;
    for (; from + count < outputs.length && count < inputs.length; count++) {
      const { value } = itemAt(outputs, from + count);
      const type = value === null ? undefined : types.get(value);
      if (type === undefined || !sameType(type, itemAt(inputs, count).type)) break;
    }
    if (count > best.count) best = { from, count };
  }
  return best;
}
