/**
 * Explains an infeasible solution: the rows and nodes that admit no choice, in words of the
 * program.
 */
import type { Solution } from '../../solver/types.ts';
import { secondsText } from '../../units.ts';
import type { Model } from '../model/model.ts';

/**
 * The constraints that together exclude every choice, in words of the program: rows by their names,
 * and a variable without a value by the node whose placement it is.
 *
 * @param variableOf number in the model of a variable of the problem that was solved, where some
 *   were left out of it
 */
export function conflictOf(
  model: Model,
  solution: Pick<Solution, 'conflict' | 'emptyVariable'>,
  variableOf: (variable: number) => number = (v) => v,
): readonly string[] {
  const { graph, flow, ceilingSeconds } = model;
  const expensive =
    ceilingSeconds === undefined
      ? []
      : [`prices above ${secondsText(ceilingSeconds)}, the cost of a whole recipe, are left out`];
  if (solution.emptyVariable === undefined) return [...(solution.conflict ?? []), ...expensive];
  const variable = model.variables[variableOf(solution.emptyVariable)];
  const around = 'goes with those of the nodes around it';
  switch (variable.kind) {
    case 'node': {
      const { name, kind, target } = graph.nodes[variable.node];
      return [
        `no placement of %${name} (${kind === 'call' ? target : kind}) ${around}`,
        ...expensive,
      ];
    }
    case 'copy': {
      const { node } = flow.values[model.copies[variable.copy].value];
      return [
        `no placement of the result of %${graph.nodes[node].name} and of a copy of it ${around}`,
        ...expensive,
      ];
    }
    case 'output':
      return [
        'no placement of the output ' +
          `%${flow.outputs[variable.output].output.value ?? variable.output} ${around}`,
        ...expensive,
      ];
  }
}
