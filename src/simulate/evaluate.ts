/**
 * Evaluates a graph on one device with a value for each placeholder. Regions of per-device code run
 * on virtual devices of their own.
 */
import { checkKinds } from '../arguments.ts';
import { isList, valueText, wrongArgument } from '../errors.ts';
import type { Graph } from '../graph/types.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { type EvaluateOptions, evaluateWith, type Evaluation } from './interpreter/evaluator.ts';
import type { Value } from './interpreter/values.ts';
import { localMapValues } from './ranks/local-map.ts';

export type { EvaluateOptions, Evaluation } from './interpreter/evaluator.ts';
export type { Value } from './interpreter/values.ts';

/**
 * Runs a graph on arrays in float64 and returns what it returns: the reference that programs on
 * simulated devices are compared with.
 *
 * @param inputs one value for each placeholder, in order
 * @throws E_INPUT when the inputs do not fit the placeholders; what `evaluateCall` throws, with the
 *   node
 */
export function evaluateGraph(
  table: OperatorTable,
  graph: Graph,
  inputs: readonly Value[],
  options: EvaluateOptions = {},
): Evaluation {
  checkKinds('evaluateGraph', { table: [table, 'operators'], graph: [graph, 'graph'] });
  checkKinds('evaluateGraph', { options: [options, 'record'] });
  if (!isList(inputs))
    throw wrongArgument('evaluateGraph', 'inputs', valueText(inputs), 'give a list of arrays.');
  return evaluateWith(
    (...region) => localMapValues(...region).values,
    table,
    graph,
    inputs,
    options,
  );
}
