/**
 * Writes out the loops in which JAX runs the rounds of its random bits.
 *
 * JAX lowers Threefry 2x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3") to a loop
 * of five trips for CPUs alone, and to twenty rounds in a row for all other devices
 * (`use_rolled_loops` in `jax/_src/random/threefry2x32.py`, JAX 0.10.2). A text that was lowered on
 * a machine without accelerators has the loop, whose trips would be priced as kernels of their own.
 */

import { checkKinds } from '../../../arguments.ts';
import type { Arg, Graph, Node } from '../../../graph/types.ts';
import { getOwn } from '../../../graph/value.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import type { WhileForm } from '../control-form.ts';
import { rewriteControl, type Site } from '../rewrite-control.ts';

/** Trips of the loop, each of four rounds. */
const TRIPS = 5;
const ROUNDS = 4;

/** The program with the rounds of Threefry in a row, as it runs on all devices but CPUs. */
export function unrollDraws(graph: Graph, table: OperatorTable): Graph {
  checkKinds('unrollDraws', { graph: [graph, 'graph'] });
  return rewriteControl(graph, table, (site) =>
    site.form.kind === 'while' && isThreefry(site.node, site.form)
      ? writtenOut(site, site.form)
      : undefined,
  );
}

/**
 * Tells whether a loop is that of Threefry: five trips of four rounds on words, by two rows of four
 * rotations that take turns.
 */
function isThreefry(node: Node, { step, maxTrips }: WhileForm): boolean {
  if (getOwn(node.kwargs, 'trips') !== TRIPS || maxTrips !== undefined) return false;
  const returned = step.outputs.map(({ value }) => value);
  // Four words that are drawn have the shape of a row, too: only rows return as they were taken.
  const rows = step.nodes.filter(
    ({ kind, name, type }) =>
      kind === 'placeholder' &&
      type.kind === 'tensor' &&
      type.dtype === 'u32' &&
      type.shape.length === 1 &&
      type.shape[0] === ROUNDS &&
      returned.includes(name),
  );
  const count = (target: string): number =>
    step.nodes.filter((each) => each.target === target).length;
  return (
    rows.length === 2 &&
    ['stablehlo.shift_left', 'stablehlo.shift_right_logical', 'stablehlo.xor'].every(
      (target) => count(target) === ROUNDS,
    )
  );
}

function writtenOut({ node, writer }: Site, { step, carry, captured }: WhileForm): readonly Arg[] {
  const { phase } = node.meta;
  let now = carry;
  for (let trip = 0; trip < TRIPS; trip++)
    now = writer.inline(step, [...now, ...captured], ({ meta }) =>
      phase === undefined ? meta : { ...meta, phase },
    );
  return now;
}
