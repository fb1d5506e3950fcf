/** Turns a graph that returns new states in addition to its results into a training step. */

import { ShardwrightError } from '../../errors.ts';
import { roleName, typesByName } from '../../graph/nodes.ts';
import type { Graph, Output } from '../../graph/types.ts';
import { sameType, typeText } from '../../graph/value.ts';
import { countedText } from '../../units.ts';

/**
 * Turns a graph that returns new values in addition to its results into a training step: the first
 * outputs replace the first inputs, as in `(parameters, states, data) -> (parameters, states,
 * loss)`, the form of a functional train step in JAX. Outputs and inputs are paired in order for as
 * long as their types are equal.
 *
 * @throws E_TYPE where the first output does not have the type of the first input
 */
export function asTrainStep(graph: Graph): Graph {
  const inputs = graph.nodes.filter((node) => node.kind === 'placeholder');
  const count = pairsOf(graph);
  if (count === 0) {
    const [input] = inputs;
    const first = graph.nodes.find((node) => node.name === graph.outputs[0]?.value);
    const [returned, taken] = [first, input].map((node) =>
      node === undefined ? 'nothing' : `'${node.name}', ${typeText(node.type)}`,
    );
    throw new ShardwrightError(
      'E_TYPE',
      `--train-step: the first output is ${returned}, the first input ${taken}`,
      {
        hint:
          'a train step returns its new parameters and states first, in the order in which it ' +
          'takes them',
      },
    );
  }
  const outputs = graph.outputs.map((output, k): Output =>
    k < count ? { value: output.value, role: 'mutation', of: roleName(inputs[k]) } : output,
  );
  const note =
    `--train-step: the first ${countedText(count, 'output')} replace the first ` +
    `${countedText(count, 'input')} and are placed as they are.`;
  return { ...graph, outputs, notes: [...(graph.notes ?? []), note] };
}

/** Asks for `--train-step` where most inputs come back with their types, in their order. */
export function trainStepNotes(graph: Graph): string[] {
  const count = pairsOf(graph);
  const inputs = graph.nodes.filter((node) => node.kind === 'placeholder').length;
  if (count < 2 || count < inputs / 2 || graph.outputs.some(({ role }) => role !== 'output'))
    return [];
  return [
    `The first ${count} outputs have the types of the first ${count} inputs, as the new ` +
      'values of a train step have: --train-step places each as the input that it replaces.',
  ];
}

/** How many leading outputs have the types of the leading inputs. */
function pairsOf(graph: Graph): number {
  const types = typesByName(graph);
  const inputs = graph.nodes.filter((node) => node.kind === 'placeholder');
  let count = 0;
  for (const { role, value } of graph.outputs) {
    const type = value === null ? undefined : types.get(value);
    const input = inputs[count];
    if (
      role !== 'output' ||
      type === undefined ||
      input === undefined ||
      !sameType(type, input.type)
    )
      break;
    count++;
  }
  return count;
}
