/**
 * Computes the value of a region of per-device code where the program runs on one device: the whole
 * operands are laid out over virtual devices of the region's own axes, the body runs on them with
 * its collectives, and the pieces are put together. Source: `shard_map` by its definition.
 */
import { defined } from '../../defined.ts';
import { internalError } from '../../errors.ts';
import { localMapCall, nestedAxes } from '../../graph/local-map.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { isRef } from '../../graph/value.ts';
import type { DeviceProgram } from '../../lower/program/program.ts';
import { eraseTypes } from '../../lower/typed/erase.ts';
import { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { type AxisType, cutOf, placementOf } from '../../mesh/local-types/types.ts';
import { Sharding } from '../../mesh/sharding/sharding.ts';
import { flat, fromFlat, NDArray } from '../../ndarray/array.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { MappedRegion } from '../interpreter/evaluator.ts';
import type { Value } from '../interpreter/values.ts';
import { type DeviceRun, runDevices } from './devices.ts';
import { putTogether } from './laid-out.ts';
import { wholeOutside } from './nested-regions.ts';
import { scatter } from './shards.ts';

/** Programs of the bodies that ran, by table and body. */
const programs = new WeakMap<OperatorTable, WeakMap<Graph, DeviceProgram>>();

/** The per-device program of a region, on the mesh of its axes. */
export function regionProgram(table: OperatorTable, node: Node, body: Graph): DeviceProgram {
  let known = programs.get(table);
  if (known === undefined) programs.set(table, (known = new WeakMap()));
  let program = known.get(body);
  if (program === undefined) {
    const { axes, inSpecs } = localMapCall(node);
    const inner = nestedAxes(body, axes);
    const inputs = inSpecs.map((spec) => [
      ...spec.map((type): AxisType =>
        cutOf(type as AxisType) === undefined ? (type as AxisType) : 'V',
      ),
      ...inner.map((): AxisType => 'I'),
    ]);
    program = eraseTypes({
      graph:
        inner.length === 0
          ? body
          : wholeOutside(
              body,
              axes.map(({ name }) => name),
            ),
      mesh: new DeviceMesh([...axes, ...inner]),
      table,
      inputs,
      manual: axes.map(({ name }) => name),
    });
    known.set(body, program);
  }
  return program;
}

/**
 * Results of a region.
 *
 * @param seed of the addends that an operand of type P is taken apart into, and of random operators
 * @throws E_VERIFY where ranks hold different values of a result that is claimed to be equal
 */
export function localMapValues(
  table: OperatorTable,
  { node, body }: MappedRegion,
  look: (name: string) => Value,
  seed: number,
  onValue?: (name: string, byRank: readonly NDArray[]) => void,
): { values: NDArray[]; run: DeviceRun } {
  const call = localMapCall(node);
  const program = regionProgram(table, node, body);
  const { space } = program;
  // Axes of regions inside of it alone hold the same.
  const idOf = (spec: readonly string[]): number =>
    space.intern(
      new Sharding(program.mesh.names.map((_, m) => placementOf((spec[m] ?? 'I') as AxisType))),
    );
  const inputs = call.operands.map((operand, i) => {
    const x = isRef(operand) ? look(operand.name) : null;
    if (!(x instanceof NDArray))
      throw internalError(`operand ${i} of ${node.name} is not an array`);
    const { tiles } = scatter(
      space,
      idOf(call.inSpecs[i]),
      x.shape,
      Float64Array.from(flat(x)),
      seed + i + 1,
    );
    return tiles.map(({ shape, data }) => fromFlat(shape, data, x.dtype));
  });
  const run = runDevices(table, program, inputs, {
    seed,
    ...defined({ onValue }),
  });
  const values = call.outSpecs.map((spec, k) => {
    const byRank = run.outputs[k];
    if (byRank === null)
      throw internalError(`${node.name} returns nothing in place of result ${k}`);
    const shape = byRank[0].shape.map((size, d) =>
      call.axes.reduce(
        (n, axis, a) => (cutOf(spec[a] as AxisType) === d ? n * axis.size : n),
        size,
      ),
    );
    const { data } = putTogether(space, idOf(spec), shape, byRank);
    return fromFlat(shape, data, byRank[0].dtype);
  });
  return { values, run };
}
