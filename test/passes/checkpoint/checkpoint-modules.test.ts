import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import fc from 'fast-check';
import solver from 'javascript-lp-solver';
import { describe, expect, test } from 'vitest';

import {
  checkpointModules,
  type ModuleStatistics,
  type PerModuleOptions,
} from '../../../src/passes/checkpoint/per-module.ts';
import { chooseRegion, type RegionOp } from '../../../src/passes/checkpoint/per-op.ts';
import {
  type CurveLine,
  curveLines,
  type CurvePoint,
  recomputeCurve,
  squaredError,
} from '../../../src/passes/checkpoint/recompute-curve.ts';

/**
 * Written by scripts/engines/module_statistics.py: what PyTorch 2.13 measures and what its ILP
 * answers.
 */
interface Measured {
  readonly worldSize: number;
  readonly baseline: { readonly peakBytes: number; readonly computeMs: number };
  readonly answers: readonly {
    readonly budgetGiB: number;
    readonly ratios: Readonly<Record<string, number>>;
    readonly recomputeMs: number;
    readonly peakBoundBytes: number;
  }[];
  readonly modules: readonly (Omit<ModuleStatistics, 'recompute'> & {
    readonly ops?: readonly {
      readonly ms: number;
      readonly bytes: number;
      readonly view?: true;
      readonly random?: true;
      readonly inPlaceOf?: number;
    }[];
    readonly sac?: {
      readonly bytes: number;
      readonly ms: number;
      readonly curve: readonly (readonly [number, number])[];
      readonly slopes: readonly number[];
      readonly intercepts: readonly number[];
    };
  })[];
}

const file = join(import.meta.dirname, '..', '..', 'fixtures', 'torch', 'per-module.json');
const measured = JSON.parse(readFileSync(file, 'utf8')) as Measured;
const GIB = 2 ** 30;
const answerAt = (budgetGiB: number): Measured['answers'][number] =>
  measured.answers.find((a) => a.budgetGiB === budgetGiB)!;

const regionOf = (m: Measured['modules'][number]): RegionOp[] =>
  (m.ops ?? []).map(({ ms, ...op }) => ({ ...op, seconds: ms / 1e3 }));
const torchLines = (m: Measured['modules'][number]): CurveLine[] =>
  m.sac!.slopes.map((slope, i) => ({ slope, intercept: m.sac!.intercepts[i] }));
const inner = measured.modules.filter((m) => m.ops !== undefined);

/** The tree with our curves, or with the lines that PyTorch fitted. */
function tree(lines: 'ours' | 'torch'): ModuleStatistics[] {
  return measured.modules.map(({ ops, sac, ...rest }) => {
    if (ops === undefined || sac === undefined) return rest;
    const curve = recomputeCurve(regionOf({ ops, sac, ...rest }));
    const fitted = lines === 'ours' ? curveLines(curve) : torchLines({ ops, sac, ...rest });
    return { ...rest, recompute: { bytes: curve.bytes, seconds: curve.seconds, lines: fitted } };
  });
}

/** Peak of the backward pass on one device where the budget asks for no checkpointing. */
async function baselinePeakBytes(modules: readonly ModuleStatistics[]): Promise<number> {
  const result = await checkpointModules(modules, { budgetBytes: 2 ** 50 });
  if (result.status !== 'optimal' || result.modules.length > 0)
    throw new Error('a budget that everything fits is not a budget');
  return result.peakBytes;
}

const planned = (lines: 'ours' | 'torch', budgetGiB: number) =>
  checkpointModules(tree(lines), { budgetBytes: budgetGiB * GIB, devices: measured.worldSize });

describe('checkpointing per module: 4-layer transformer d768, batch 8, sequence 1024, 4 devices', () => {
  const layers = [0, 1, 2, 3].map((i) => `Transformer.layers.${i}`);

  test('the peak without checkpointing is the published one, to the rounding of an allocator', async () => {
    const peak = await baselinePeakBytes(tree('ours'));
    expect(peak).toBe(measured.baseline.peakBytes);
    // 4,032 bytes: CUDA rounds every small tensor up to 512.
    expect(Math.abs(peak - 2_583_888_896)).toBeLessThan(8192);
  });

  test('1.6 GiB: all four layers, three of them .55, 2.35 in all, recompute 7 of 98 ms', async () => {
    const result = await planned('ours', 1.6);
    if (result.status !== 'optimal') throw new Error(result.status);
    expect(result.modules.map((m) => m.name)).toEqual(layers);
    const ratios = result.modules.map((m) => m.ratio).sort((a, b) => a - b);
    for (const ratio of ratios.slice(0, 3)) expect(Math.abs(ratio - 0.55)).toBeLessThan(0.05);
    expect(Math.abs(ratios.reduce((a, b) => a + b, 0) - 2.35)).toBeLessThan(0.05);
    expect(result.peakBytes).toBeLessThanOrEqual(1.6 * GIB + 1);
    // The share of the step is what carries over between devices, within a quarter, as PyTorch's
    // own test has it.
    const share = result.recomputeSeconds / (measured.baseline.computeMs / 1e3) / (6.97 / 97.97);
    expect(Math.abs(share - 1)).toBeLessThan(0.25);
  });

  test('2.4 GiB: none; 0.8 GiB: infeasible, with the least that any choice takes', async () => {
    expect(await planned('ours', 2.4)).toMatchObject({
      status: 'optimal',
      modules: [],
      recomputeSeconds: 0,
    });
    const none = await planned('ours', 0.8);
    if (none.status !== 'infeasible') throw new Error(none.status);
    expect(none.leastPeakBytes).toBeGreaterThan(0.8 * GIB);
    const { leastPeakBytes } = none;
    const options = { devices: measured.worldSize };
    const above = await checkpointModules(tree('ours'), {
      ...options,
      budgetBytes: leastPeakBytes + 4096,
    });
    expect(above.status).toBe('optimal');
    const below = await checkpointModules(tree('ours'), {
      ...options,
      budgetBytes: leastPeakBytes - 4096,
    });
    expect(below.status).toBe('infeasible');
  });

  test("with PyTorch's lines the answer is that of its own program, solved by CBC", async () => {
    const theirs = answerAt(1.6);
    const result = await planned('torch', 1.6);
    if (result.status !== 'optimal') throw new Error(result.status);
    expect(result.modules.map((m) => m.name)).toEqual(Object.keys(theirs.ratios).sort());
    const sorted = (list: readonly number[]): number[] => [...list].sort((a, b) => a - b);
    sorted(Object.values(theirs.ratios)).forEach((ratio, i) => {
      expect(sorted(result.modules.map((m) => m.ratio))[i]).toBeCloseTo(ratio, 3);
    });
    // Printed to a hundredth of a millisecond.
    expect(Math.abs(result.recomputeSeconds * 1e3 - theirs.recomputeMs)).toBeLessThan(0.006);
    for (const budget of [2.4, 0.8]) {
      const own = await planned('torch', budget);
      expect(own.status === 'infeasible').toBe(answerAt(budget).peakBoundBytes < 0);
    }
  });

  test('curves are those of PyTorch, and no lines fit them better', () => {
    expect(inner.length).toBe(13);
    for (const m of inner) {
      const curve = recomputeCurve(regionOf(m));
      expect(curve.bytes).toBe(m.sac!.bytes);
      // Operators of equal bytes a second stand in the order of a hash table there; the line
      // through the points is the same.
      const theirs = m.sac!.curve.map(([x, recomputed]) => ({ discarded: x - 0.01, recomputed }));
      expect(curve.points.length).toBe(theirs.length);
      for (const [points, line] of [
        [theirs, curve.points],
        [curve.points, theirs],
      ] as const)
        for (const p of points)
          expect(alongLine(line, p.discarded), m.name).toBeCloseTo(p.recomputed, 9);
      const x = theirs.slice(0, -1).map((p) => p.discarded + 0.01);
      const y = theirs.slice(1).map((p) => p.recomputed);
      const own = squaredError(curveLines({ ...curve, points: theirs }), x, y);
      const other = squaredError(torchLines(m), x, y);
      // A library searches for the break by evolution; a fit through all points is 0 but for
      // rounding.
      expect(own, m.name).toBeLessThanOrEqual(other * (1 + 1e-9) + 1e-20);
      expect(own, m.name).toBeGreaterThan(other * (1 - 1e-3) - 1e-9);
    }
  });
});

/** Height over x of the line through points in rising order. */
function alongLine(points: readonly CurvePoint[], x: number): number {
  const k = Math.max(
    1,
    points.findIndex((p) => p.discarded >= x - 1e-12),
  );
  const [a, b] = [points[k - 1], points[k]];
  return (
    a.recomputed + ((x - a.discarded) / (b.discarded - a.discarded)) * (b.recomputed - a.recomputed)
  );
}

test('operators that draw random numbers are kept together or not at all', () => {
  const ops = [
    { seconds: 5, bytes: 10, random: true },
    { seconds: 1, bytes: 10 },
    { seconds: 5, bytes: 10, random: true },
  ];
  expect(chooseRegion(ops, 10).keep).toEqual([false, true, false]);
  expect(chooseRegion(ops, 20).keep).toEqual([true, false, true]);
});

/**
 * Least seconds by trying every set of modules that do not contain each other, ratios by a linear
 * program each.
 */
function leastSeconds(
  modules: readonly ModuleStatistics[],
  { budgetBytes, devices = 1 }: PerModuleOptions,
): number {
  const some = modules.flatMap((m, i) =>
    m.recompute === undefined ? [] : [{ ...m, i, recompute: m.recompute }],
  );
  let best = Infinity;
  for (let mask = 0; mask < 1 << some.length; mask++) {
    const chosen = some.filter((_, k) => (mask >> k) & 1);
    if (chosen.some((a) => chosen.some((b) => b.name.startsWith(`${a.name}.`)))) continue;
    const constraints: Record<string, { max?: number; min?: number }> = {};
    const variables: Record<string, Record<string, number>> = {};
    for (const c of chosen) {
      const { bytes, seconds, lines } = c.recompute;
      const r: Record<string, number> = { [`most${c.i}`]: 1, [`least${c.i}`]: bytes };
      const t: Record<string, number> = { cost: 1 };
      constraints[`most${c.i}`] = { max: 1 };
      constraints[`least${c.i}`] = { min: bytes - c.savedBytes };
      lines.forEach(({ slope, intercept }, s) => {
        r[`line${c.i}.${s}`] = -seconds * slope;
        t[`line${c.i}.${s}`] = 1;
        constraints[`line${c.i}.${s}`] = { min: seconds * intercept };
      });
      for (let i = c.i + 1; i < modules.length; i++) r[`at${i}`] = bytes;
      variables[`r${c.i}`] = r;
      variables[`t${c.i}`] = t;
    }
    let possible = true;
    modules.forEach((m, i) => {
      const before = chosen.filter((c) => c.i < i);
      const held =
        m.aliveBytes +
        m.activationGradientBytes +
        (modules.at(-1)!.parameterBytes + m.gradientTotalBytes) / devices;
      const needed =
        held - budgetBytes + before.reduce((sum, c) => sum + c.recompute.bytes - c.savedBytes, 0);
      if (before.length > 0) constraints[`at${i}`] = { min: needed };
      else possible &&= needed <= 0;
    });
    if (!possible) continue;
    if (chosen.length === 0) return 0;
    const answer = solver.Solve({ optimize: 'cost', opType: 'min', constraints, variables }) as {
      feasible: boolean;
      result: number;
    };
    if (answer.feasible) best = Math.min(best, answer.result);
  }
  return best;
}

test('random trees: the least seconds of every set of modules tried one by one', async () => {
  const bytes = fc.integer({ min: 1, max: 40 });
  const leaf = (name: string, alive: number): ModuleStatistics => ({
    name,
    parameterBytes: 4,
    gradientTotalBytes: 2,
    savedBytes: 0,
    aliveBytes: alive,
    activationGradientBytes: 1,
  });
  const part = fc.record({
    saved: bytes,
    more: bytes,
    seconds: fc.integer({ min: 1, max: 20 }),
    turn: fc.integer({ min: 1, max: 9 }),
  });
  const random = fc.array(fc.record({ whole: part, left: part, right: part }), {
    minLength: 1,
    maxLength: 3,
  });
  let bound = 0;
  await fc.assert(
    fc.asyncProperty(random, fc.integer({ min: 20, max: 95 }), async (layers, percent) => {
      let alive = 0;
      const withCurve = (
        name: string,
        p: { saved: number; more: number; seconds: number; turn: number },
        saved: number,
      ): ModuleStatistics => ({
        ...leaf(name, alive),
        savedBytes: saved,
        recompute: {
          bytes: saved + p.more,
          seconds: p.seconds,
          lines: [
            { slope: 0.2, intercept: 0 },
            { slope: 10 / p.turn, intercept: 1.2 - 10 / p.turn },
          ],
        },
      });
      const modules = layers.flatMap(({ whole, left, right }, k) => {
        const list: ModuleStatistics[] = [];
        for (const [name, p] of [
          ['a', left],
          ['b', right],
        ] as const) {
          alive += p.saved;
          list.push(leaf(`m.${k}.${name}.x`, alive), withCurve(`m.${k}.${name}`, p, p.saved));
        }
        alive += whole.saved;
        list.push(withCurve(`m.${k}`, whole, left.saved + right.saved + whole.saved));
        return list;
      });
      modules.push(leaf('m', alive));
      const budgetBytes = Math.floor(((await baselinePeakBytes(modules)) * percent) / 100);
      const options = { budgetBytes, devices: 2 };
      const expected = leastSeconds(modules, options);
      const result = await checkpointModules(modules, options);
      if (expected === Infinity) {
        expect(result.status).toBe('infeasible');
        return;
      }
      if (result.status !== 'optimal') throw new Error(result.status);
      if (expected > 0) bound++;
      expect(result.recomputeSeconds).toBeCloseTo(expected, 5);
    }),
    { numRuns: 25, seed: 7 },
  );
  expect(bound).toBeGreaterThan(6);
});

describe('units of parameters that are gathered together', () => {
  const options = { budgetBytes: 1.6 * GIB, devices: 4 };
  const units = [0, 1, 2, 3].map((i) => `Transformer.layers.${i}`);

  test('count three times the largest of them, and nothing around them is checkpointed', async () => {
    const free = await checkpointModules(tree('ours'), options);
    const sharded = await checkpointModules(tree('ours'), { ...options, units });
    if (free.status !== 'optimal' || sharded.status !== 'optimal') throw new Error('no answer');
    // 3 x 27 MiB less for activations.
    expect(sharded.recomputeSeconds).toBeGreaterThan(free.recomputeSeconds);
    const inside = await checkpointModules(tree('ours'), {
      ...options,
      units: units.flatMap((u) => [`${u}.attention`, `${u}.feed_forward`]),
    });
    if (inside.status === 'optimal')
      for (const m of inside.modules) expect(units).not.toContain(m.name);
  });

  test('unknown names and trees without a root are refused', async () => {
    await expect(
      checkpointModules(tree('ours'), { ...options, units: ['nobody'] }),
    ).rejects.toThrow(/no module 'nobody'/);
    await expect(checkpointModules(tree('ours').slice(0, -1), options)).rejects.toThrow(
      /is not inside/,
    );
    await expect(checkpointModules([], options)).rejects.toThrow(/is not inside/);
  });
});
