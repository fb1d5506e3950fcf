import { describe, expect, it } from 'vitest';

import type { Graph } from '../../../src/graph/types.ts';
import { getOwn, isList, isRef } from '../../../src/graph/value.ts';
import { fromList, NDArray } from '../../../src/ndarray/array.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { unrollScan } from '../../../src/passes/control/loops/unroll-scan.ts';
import { predicate } from '../../../src/passes/control/predicate.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { graphOf } from '../../simulate/graph-inputs.ts';
import { controlCalls, expectClose, numbers, placeholders, table } from '../control-support.ts';

/** Outputs on the same numbers for the same positions, whatever the inputs are called. */
function outputs(graph: Graph, flip: boolean): (readonly number[] | null)[] {
  const inputs = placeholders(graph).map(({ type }, i) => {
    if (type.kind !== 'tensor') throw new Error('an input is not a tensor');
    const shape = type.shape.map((dim) => (typeof dim === 'number' ? dim : 1));
    const count = shape.reduce((a, b) => a * b, 1);
    const data = numbers(count, i + 2).map((v) => (flip ? -Math.abs(v) : Math.abs(v)) / 2);
    return fromList(shape, data, type.dtype);
  });
  return evaluateGraph(table, graph, inputs).outputs.map((value) =>
    value instanceof NDArray ? value.toArray() : null,
  );
}

describe('graphs of PyTorch with control flow', () => {
  // PyTorch's own joint graph is the judge of ours, which is made from its forward graph.
  it.each([['hop-cond'], ['hop-scan'], ['hop-map']])(
    '%s: our joint graph gives the gradients of the joint graph that PyTorch made',
    (name) => {
      const theirs = graphOf(`${name}-joint/joint`);
      const forward = graphOf(`${name}/export`);
      const ours = jointGraph(forward, { wrt: 'all' });
      for (const flip of [false, true]) {
        const wanted = outputs(theirs, flip);
        const got = outputs(ours, flip);
        expect(got).toHaveLength(wanted.length);
        wanted.forEach((value, i) => {
          if (value !== null) expectClose(got[i] ?? [], value, 1e-9, `output ${i}`);
        });
        const straight = jointGraph(predicate(unrollScan(forward)).graph, { wrt: 'all' });
        expect(controlCalls(straight)).toEqual([]);
        const unrolled = outputs(straight, flip);
        wanted.forEach((value, i) => {
          if (value !== null) expectClose(unrolled[i] ?? [], value, 1e-9, `unrolled output ${i}`);
        });
      }
    },
  );

  it('hop-cond-joint: two cond, four bodies, equal operands within a pair, gradients of the parameters', () => {
    const joint = graphOf('hop-cond-joint/joint');
    const conds = joint.nodes.filter((node) => node.target === 'cond');
    expect(conds).toHaveLength(2);
    expect(Object.keys(joint.subgraphs)).toHaveLength(4);
    for (const call of conds) {
      const [yes, no] = [call.args[1], call.args[2]].map((arg) =>
        arg !== null && typeof arg === 'object' && !isList(arg) && arg.kind === 'graph'
          ? getOwn(joint.subgraphs, arg.name)
          : undefined,
      );
      expect(placeholders(yes as Graph).map((n) => n.type)).toEqual(
        placeholders(no as Graph).map((n) => n.type),
      );
    }
    const second = conds[1];
    expect(second.type.kind === 'tuple' && second.type.items.length).toBe(4);
    const reads = joint.nodes.filter(
      (n) => n.target === 'operator.getitem' && isRef(n.args[0]) && n.args[0].name === second.name,
    );
    expect(reads).toHaveLength(3);
    expect(joint.outputs.filter((o) => o.role === 'grad').map((o) => o.value !== null)).toEqual([
      true,
      true,
      true,
      false,
    ]);
  });
});
