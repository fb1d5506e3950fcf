import { GraphBuilder } from '../../../src/graph/build.ts';
import { eraseTypes } from '../../../src/lower/typed/erase.ts';
import { DeviceMesh } from '../../../src/mesh/devices/mesh.ts';
import type { Primitive } from '../../../src/mesh/local-types/primitives.ts';
import { cutOf } from '../../../src/mesh/local-types/types.ts';
import type { NDArray } from '../../../src/ndarray/array.ts';
import { inferCall } from '../../../src/ops/record/infer.ts';
import { spmdTarget } from '../../../src/ops/spmd/operators.ts';
import { runDevices } from '../../../src/simulate/ranks/devices.ts';
import { table } from './simulated.ts';

/** What each rank holds after verbs, applied one after the other to what each rank holds before. */
export function apply(
  steps: readonly Pick<Primitive, 'op' | 'src' | 'dst'>[],
  ranks: readonly NDArray[],
): NDArray[] {
  const builder = new GraphBuilder('verbs');
  let at = builder.placeholder(
    'x',
    { kind: 'tensor', dtype: 'f64', shape: [...ranks[0].shape] },
    { role: 'arg', roleIndex: 0 },
  );
  for (const { op, src, dst } of steps) {
    const args = [at, 'tp', ranks.length, src, dst] as const;
    const type = inferCall(table, { target: spmdTarget(op), args, kwargs: {} }, () =>
      builder.typeOf(at),
    );
    at = builder.call(spmdTarget(op), args, type ?? { kind: 'none' });
  }
  builder.output({ value: at.name, role: 'output', index: 0 });
  const [{ src }] = steps;
  const program = eraseTypes({
    graph: builder.build(),
    mesh: new DeviceMesh([{ name: 'tp', size: ranks.length }]),
    table,
    inputs: [[cutOf(src) === undefined ? src : 'V']],
    manual: ['tp'],
  });
  return [...(runDevices(table, program, [ranks]).outputs[0] ?? [])];
}
