/**
 * Checks replicas: it runs a per-device program on inputs by rank and reports the values whose
 * replicas differ although they are claimed to be equal, with axis and rank. It finds faults that
 * types cannot see: inputs that differ from their claims, and devices that compute differently.
 */
import { checkKinds } from '../../arguments.ts';
import type { ErasedProgram } from '../../lower/typed/erase.ts';
import { flat, type NDArray } from '../../ndarray/array.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { runDevices } from './devices.ts';

/** A local value that is claimed to be equal along an axis, and is not. */
export interface ReplicaFault {
  /** Local value of the program. */
  readonly value: string;
  /** Axis along which it is claimed to be equal. */
  readonly axis: string;
  /** Rank of the mesh whose value is not that of most others in its group. */
  readonly rank: number;
}

/**
 * Runs a program and compares every value that is claimed to be equal along an axis.
 *
 * @returns faults in the order in which values are made, so that the first one is where it began
 */
export function replicaFaults(
  table: OperatorTable,
  program: ErasedProgram,
  inputs: readonly (readonly NDArray[])[],
): readonly ReplicaFault[] {
  checkKinds('replicaFaults', {
    table: [table, 'operators'],
    program: [program, ['claims', 'graph', 'mesh']],
    inputs: [inputs, 'list'],
  });
  const { mesh, claims } = program;
  const faults: ReplicaFault[] = [];
  const groups = new Map(mesh.names.map((axis) => [axis, ranksAlong(mesh, axis)]));
  runDevices(table, program, inputs, {
    onValue: (value, byRank) => {
      for (const axis of claims.get(value) ?? [])
        for (const group of groups.get(axis) ?? []) {
          const odd = oddOne(group.map((rank) => byRank[rank]));
          if (odd >= 0) faults.push({ value, axis, rank: group[odd] });
        }
    },
  });
  return faults;
}

function ranksAlong(mesh: ErasedProgram['mesh'], axis: string): number[][] {
  const m = mesh.indexOf(axis);
  return mesh.devices.flatMap((_, rank): number[][] =>
    mesh.coordinates(rank)[m] === 0
      ? [mesh.dims[m].size].map((n) =>
          Array.from({ length: n }, (_x, c) => rank + c * mesh.strides[m]),
        )
      : [],
  );
}

/** Position of a replica that fewest others equal; -1 where all are equal. */
function oddOne(replicas: readonly NDArray[]): number {
  const same = (a: NDArray, b: NDArray): boolean => {
    const [x, y] = [flat(a), flat(b)];
    return x.length === y.length && x.every((value, i) => Object.is(value, y[i]) || value === y[i]);
  };
  const equals = replicas.map((own) => replicas.filter((other) => same(own, other)).length);
  const fewest = Math.min(...equals);
  return fewest === replicas.length ? -1 : equals.lastIndexOf(fewest);
}
