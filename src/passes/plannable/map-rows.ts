/**
 * A map whose rows are shared out: its trips do not depend on each other, so a device that holds
 * some rows of what is mapped over runs the body, unsharded, for these alone. As an operator of its
 * own: all scanned tensors and all results are cut on dim 0 the same way, what the body captures is
 * whole.
 */

import { typesByName } from '../../graph/nodes.ts';
import type { Graph } from '../../graph/types.ts';
import { exampleShape } from '../../graph/value.ts';
import { bind } from '../../ops/record/infer.ts';
import {
  defineOp,
  drawsNumbers,
  type OperatorRecord,
  type OpWork,
} from '../../ops/record/record.ts';
import { R, rule, S } from '../../ops/record/rule.ts';
import type { OperatorTable } from '../../ops/record/table.ts';

/**
 * @returns undefined for a body with control flow or random numbers in it, whose rows are not told
 *   apart
 */
export function mapRowsRecord(
  target: string,
  body: Graph,
  table: OperatorTable,
): OperatorRecord | undefined {
  const work = workOfTrip(body, table);
  const results = body.outputs.map(
    (output) => body.nodes.find((node) => node.name === output.value)?.type,
  );
  const types = results.flatMap((type) => (type?.kind === 'tensor' ? [type] : []));
  if (work === undefined || types.length !== results.length) return undefined;
  return defineOp(target, {
    schema: 'Tensor[] rows, Tensor[] captured',
    cls: 'other',
    results: 'tuple',
    infer: (ctx) =>
      types.map((type) => ({
        dtype: type.dtype,
        shape: [ctx.inputs[0].shape[0], ...exampleShape(type)],
      })),
    shard: (ctx) => {
      const scanned = ctx.list('rows').length;
      // Every device makes as many trips as the others.
      const cut = S(0, { even: true });
      return [
        rule(
          ctx.inputs.map((_, i) => (i < scanned ? cut : R)),
          types.map(() => cut),
          { origin: 'ext' },
        ),
      ];
    },
    flops: (ctx) => {
      const trips = ctx.inputs[0].shape[0];
      return { matrix: work.matrix * trips, vector: work.vector * trips };
    },
    bytes: (ctx) => work.bytes * ctx.inputs[0].shape[0],
  });
}

/** Work of one run of a body without control flow; undefined for other bodies. */
function workOfTrip(
  body: Graph,
  table: OperatorTable,
): (OpWork & { readonly bytes: number }) | undefined {
  const types = typesByName(body);
  const sum = { matrix: 0, vector: 0, bytes: 0 };
  for (const node of body.nodes) {
    if (node.kind !== 'call' || node.target === 'operator.getitem') continue;
    const record = table.get(node.target);
    const call = bind(table, node, (name) => types.get(name) ?? { kind: 'none' });
    if (record === undefined || call === undefined || drawsNumbers(record, call)) return undefined;
    const { matrix, vector } = record.flops(call);
    sum.matrix += matrix;
    sum.vector += vector;
    sum.bytes += record.bytes(call);
  }
  return sum;
}
