import fc from 'fast-check';
import { expect, test } from 'vitest';

import { LOCAL_MAP, localMapCall } from '../../src/graph/local-map.ts';
import type { Graph } from '../../src/graph/types.ts';
import { collectiveOf, type PrimitiveName } from '../../src/mesh/local-types/primitives.ts';
import { type AxisType, gradientType } from '../../src/mesh/local-types/types.ts';
import { spmdName } from '../../src/ops/spmd/operators.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { localMap } from '../../src/trace/spmd/local-map.ts';
import { allGather, allReduce, convert, reduceScatter } from '../../src/trace/spmd/verbs.ts';
import { input, type Tensor, trace } from '../../src/trace/trace.ts';
import { FULL } from '../support/full.ts';
import { collectivesOf, expectSame } from './support/simulated.ts';

/**
 * Random per-device programs whose verbs keep what a value means: of rows, V are those of the own
 * rank. Whatever they are, they type-check, so do their gradients, and one rank, two and four of
 * them give the same numbers.
 */
type Held = 'I' | 'R' | 'V' | 'P';
interface Step {
  readonly from: readonly Held[];
  /** Type after it; absent where it stays. */
  readonly to?: Held;
  readonly run: (x: Tensor, w: Tensor, held: Held) => Tensor;
}
const cast =
  (src: AxisType, dst: AxisType) =>
  (x: Tensor): Tensor =>
    convert(x, 'tp', { src, dst, expert: true });

const STEPS: readonly Step[] = [
  { from: ['I'], to: 'R', run: cast('I', 'R') },
  { from: ['I'], to: 'V', run: cast('I', 'S(0)') },
  { from: ['I'], to: 'P', run: cast('I', 'P') },
  { from: ['R'], to: 'V', run: cast('R', 'S(0)') },
  { from: ['R'], to: 'P', run: cast('R', 'P') },
  { from: ['V'], to: 'P', run: cast('S(0)', 'P') },
  { from: ['V'], to: 'R', run: (x) => allGather(x, 'tp', { src: 'S(0)', dst: 'R' }) },
  { from: ['V'], to: 'I', run: (x) => allGather(x, 'tp', { src: 'S(0)', dst: 'I' }) },
  { from: ['P'], to: 'R', run: (x) => allReduce(x, 'tp', { dst: 'R' }) },
  { from: ['P'], to: 'I', run: (x) => allReduce(x, 'tp', { dst: 'I' }) },
  { from: ['P'], to: 'V', run: (x) => reduceScatter(x, 'tp', { dst: 'S(0)' }) },
  { from: ['I', 'R', 'V'], run: (x) => x.tanh() },
  { from: ['I', 'R', 'V', 'P'], run: (x) => x.mul(1.5).add(x) },
  {
    from: ['I', 'R', 'V', 'P'],
    run: (x, w, held) => x.matmul(held === 'I' ? w : convert(w, 'tp', { src: 'I', dst: 'R' })),
  },
];
const SPECS = { I: { tp: 'I' }, R: { tp: 'R' }, V: { tp: 'S(0)' }, P: { tp: 'P' } } as const;

/**
 * The steps that a list of numbers picks, each among those that the value of the moment may take.
 */
function program(start: Held, picks: readonly number[], mesh: string): Graph {
  let held = start;
  const steps = picks.map((pick): [Step, Held] => {
    const open = STEPS.filter(({ from }) => from.includes(held));
    const step = open[pick % open.length];
    const taken: [Step, Held] = [step, held];
    held = step.to ?? held;
    return taken;
  });
  const body = (x: Tensor, w: Tensor): Tensor =>
    steps.reduce((now, [step, type]) => step.run(now, w, type), x);
  const options = { inSpecs: [SPECS[start], SPECS.I], outSpecs: SPECS[held], autoCast: false };
  return trace(
    (x, w) => localMap(body, options)(x, w),
    [input([8, 4], 'f64'), input([4, 4], 'f64')],
    { mesh },
  );
}

/** Collectives that the bodies of a program name. */
const named = (graph: Graph): number =>
  Object.values(graph.subgraphs).reduce(
    (sum, { nodes }) =>
      sum +
      nodes.filter(({ target }) => collectiveOf(spmdName(target) as PrimitiveName) !== undefined)
        .length,
    0,
  );

test('they and their gradients type-check, run what they name, and mean the same on any number of ranks', () => {
  const start = fc.constantFrom<Held>('I', 'R', 'V', 'P');
  const picks = fc.array(fc.nat(1000), { minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(start, picks, (held, list) => {
      const joint = (mesh: string): Graph =>
        jointGraph(program(held, list, mesh), { wrt: ['arg0', 'arg1'] });
      const single = joint('tp=1');
      expect(collectivesOf(single).flat()).toEqual([]);
      for (const mesh of ['tp=2', 'tp=4']) {
        const graph = joint(mesh);
        expectSame(graph, single);
        expect(collectivesOf(graph).flat().length).toBe(named(graph));
        const [forward, backward] = graph.nodes
          .filter(({ target }) => target === LOCAL_MAP)
          .map(localMapCall);
        // Gradients of inputs leave as the duals of what the inputs are.
        const dual = forward.inSpecs.map(([type]) => [gradientType(type as AxisType)]);
        for (const [k, spec] of backward.outSpecs.entries())
          expect(dual[backward.outSpecs.length === 1 ? 0 : k]).toEqual(spec);
      }
    }),
    { numRuns: !FULL ? 8 : 200, seed: 24 },
  );
});
