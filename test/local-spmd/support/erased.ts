import { placeholdersOf } from '../../../src/graph/control.ts';
import type { Graph } from '../../../src/graph/types.ts';
import type { DeviceProgram } from '../../../src/lower/program/program.ts';
import { flat, fromFlat, NDArray } from '../../../src/ndarray/array.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { type ExecutedCollective, runDevices } from '../../../src/simulate/ranks/devices.ts';
import { putTogether } from '../../../src/simulate/ranks/laid-out.ts';
import { scatter } from '../../../src/simulate/ranks/shards.ts';
import { drawn, table } from './simulated.ts';

/**
 * Runs an erased program on its virtual devices; with the program that it was made of, also what
 * each result differs from that of one device, and how far ranks disagree that should hold the
 * same.
 */
export function runErased(
  program: DeviceProgram,
  graph?: Graph,
): { collectives: readonly ExecutedCollective[]; compare: number[] } {
  const { space } = program;
  const placed = new Map(program.values.map((value) => [value.name, value]));
  const whole: NDArray[] = [];
  const inputs = placeholdersOf(program.graph).map(({ name, type }, i) => {
    const value = placed.get(name);
    if (value === undefined || type.kind !== 'tensor')
      throw new Error(`input ${name} has no place`);
    const x = drawn(value.shape, i);
    whole.push(fromFlat(x.shape, Float64Array.from(flat(x)), type.dtype));
    const { tiles } = scatter(
      space,
      value.sharding,
      value.shape,
      Float64Array.from(flat(x)),
      i + 1,
    );
    return tiles.map(({ shape, data }) => fromFlat(shape, data, type.dtype));
  });
  const run = runDevices(table, program, inputs);
  if (graph === undefined) return { collectives: run.collectives, compare: [] };
  const reference = evaluateGraph(table, graph, whole).outputs;
  const compare = reference.flatMap((value, k) => {
    const [byRank, sharding] = [run.outputs[k], program.outputs[k]];
    if (!(value instanceof NDArray) || byRank === null || sharding === null) return [];
    const { data, disagreement } = putTogether(space, sharding, value.shape, byRank);
    const expected = flat(value);
    return [
      disagreement,
      ...[...data].map((x, i) => Math.abs(x - expected[i]) / (1 + Math.abs(expected[i]))),
    ];
  });
  return { collectives: run.collectives, compare };
}
