import { twofold } from './alpa-collectives.ts';
import type { AlpaCosts, Spec } from './alpa-costs.ts';
import { usersOf } from './alpa-problem.ts';
import type { Value } from './alpa-values.ts';
import type { Hlo, Instruction } from './hlo.ts';

interface Step {
  readonly axis: number;
  readonly dim: number;
}

/** What the reduce-scatter pass makes of a plan. */
export interface Split {
  /** Instructions that are cut further than planned. */
  readonly cut: ReadonlySet<number>;
  readonly made: ReadonlyMap<
    number,
    { readonly gathered?: readonly Step[]; readonly scattered?: Step }
  >;
  /** Axes of all-reduces that reductions over newly cut dims need. */
  readonly summed: ReadonlyMap<number, readonly number[]>;
}

/**
 * Alpa's pass that turns all-reduces into reduce-scatters where what hangs on the result (moments,
 * the new parameter) can be kept in parts and at most one value has to be gathered again; ZeRO
 * stage 2. Aggressive: parameters are kept in parts too and gathered where they are used; ZeRO
 * stage 3.
 */
export function scattered(
  hlo: Hlo,
  values: readonly Value[],
  costs: AlpaCosts,
  aggressive = false,
): Split {
  const users = usersOf(hlo);
  const parameterOf = new Map(hlo.aliases.map(([p, next]) => [next.id, p]));
  const usersWithAlias = (x: Instruction): Instruction[] =>
    [
      ...users[x.id],
      ...(parameterOf.has(x.id) ? users[parameterOf.get(x.id)?.id ?? -1] : []),
    ].filter((u) => u.op.kind !== 'tuple');
  const isSame = (a: readonly number[], b: readonly number[]): boolean =>
    a.length === b.length && a.every((x, i) => x === b[i]);
  const cut = new Set<number>();
  const made = new Map<number, { gathered?: Step[]; scattered?: Step }>();
  const how = new Map<number, readonly Step[]>();

  for (const ins of hlo.instructions) {
    const { spec, sums, scatter, reduced } = values[ins.id];
    if (sums === undefined || sums.length !== 1 || costs.size(sums[0]) === 1) continue;
    if (ins.operands.some((o) => cut.has(o.id))) continue;
    const product = ins.op.kind === 'dot' || ins.op.kind === 'conv';
    if (twofold(ins, values)) continue;
    if (!product && !(ins.op.kind === 'reduce' && ins.shape.length === 1)) continue;
    const axis = reduced ?? sums[0];
    const steps = product ? differences(spec, scatter ?? spec) : [{ axis, dim: 0 }];
    if (steps.length === 0) continue;
    if (
      steps.some(
        (s) =>
          (ins.shape[s.dim] / (spec[s.dim] < 0 ? 1 : costs.size(spec[s.dim]))) %
            costs.size(s.axis) !==
          0,
      )
    )
      continue;

    const same = new Set<Instruction>();
    const edge = new Set<Instruction>();
    const consumers = new Set<Instruction>();
    const visited = new Set<Instruction>();
    let turn: Instruction | undefined;
    const find = (x: Instruction): void => {
      visited.add(x);
      const readers = usersWithAlias(x);
      for (const u of readers) {
        // At most one transpose on the way.
        if (u.op.kind === 'transpose' && (turn === undefined || isSame(turn.shape, u.shape)))
          turn = u;
        const shape =
          u.op.kind === 'transpose' && turn !== undefined && isSame(turn.shape, u.shape)
            ? u.shape
            : x.shape;
        if (!isSame(values[u.id].spec, spec) || !isSame(u.shape, shape)) {
          edge.add(x);
          return;
        }
      }
      same.add(x);
      for (const u of readers)
        if (!visited.has(u)) {
          consumers.add(u);
          find(u);
        }
      for (const o of x.operands)
        if (
          !visited.has(o) &&
          !alwaysWhole(o) &&
          isSame(values[o.id].spec, spec) &&
          isSame(o.shape, x.shape)
        )
          find(o);
    };
    find(ins);

    let gather: Instruction[] = [];
    for (const x of edge)
      if (consumers.has(x)) {
        if (users[x.id].every((u) => u.op.kind === 'reduce')) same.add(x);
        else gather.push(x);
      }
    // What would be gathered before the forward pass is gathered after the backward pass instead.
    if (gather.length === 1 && gather[0].op.kind === 'parameter') {
      const [parameter] = gather;
      gather = [...same].filter((x) => parameterOf.get(x.id) === parameter);
      edge.delete(parameter);
    }
    const replaces = (x: Instruction): boolean =>
      parameterOf.has(x.id) && users[x.id].every((u) => u.op.kind === 'tuple');
    const parameters =
      [...same].filter((x) => x.op.kind === 'parameter').length + gather.filter(replaces).length;
    if (parameters < 1 || gather.length > 1 || same.size < 5) continue;

    for (const x of [...same, ...gather]) {
      cut.add(x.id);
      how.set(x.id, steps);
    }
    made.set(ins.id, { ...made.get(ins.id), scattered: steps[0] });
    for (const x of gather) {
      const parameter = parameterOf.get(x.id);
      if (!aggressive || parameter === undefined || !replaces(x)) {
        made.set(x.id, { ...made.get(x.id), gathered: [...steps] });
        continue;
      }
      cut.add(parameter.id);
      how.set(parameter.id, steps);
      // The first product gathers for itself, so that the whole need not be kept until the backward
      // pass.
      const whole = users[parameter.id].filter((u) => !cut.has(u.id));
      const products = whole.filter((u) => u.op.kind === 'dot' || u.op.kind === 'conv');
      const times =
        (products.length > 0 ? 1 : 0) + (whole.length > Math.min(products.length, 1) ? 1 : 0);
      made.set(parameter.id, { gathered: Array.from({ length: times }, () => steps).flat() });
    }
  }
  const summed = new Map<number, number[]>();
  for (const ins of hlo.instructions) {
    const { op, operands } = ins;
    if (op.kind !== 'reduce' || cut.has(ins.id)) continue;
    const axes = (how.get(operands[0].id) ?? [])
      .filter((s) => op.dims.includes(s.dim))
      .map((s) => s.axis);
    if (axes.length > 0) summed.set(ins.id, axes);
  }
  return { cut, made, summed };
}

function differences(from: Spec, to: Spec): Step[] {
  return to.flatMap((axis, dim) => (axis >= 0 && from[dim] < 0 ? [{ axis, dim }] : []));
}

/** Constants and what is broadcast from scalars. */
function alwaysWhole(x: Instruction): boolean {
  return (
    x.op.kind === 'constant' || (x.op.kind === 'broadcast' && x.operands[0].shape.length === 0)
  );
}
