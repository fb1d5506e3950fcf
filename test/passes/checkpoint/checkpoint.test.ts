import fc from 'fast-check';
import highsLoader from 'highs';
import { describe, expect, test } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { checkmate, checkmateProgram } from '../../../src/passes/checkpoint/checkmate.ts';
import {
  evaluateKept,
  kneeBudget,
  recomputeGraph,
} from '../../../src/passes/checkpoint/evaluate.ts';
import { forwardValues } from '../../../src/passes/checkpoint/joint-values.ts';
import { bestKept, greedyKept } from '../../../src/passes/checkpoint/knapsack.ts';
import { minNodeCut } from '../../../src/passes/checkpoint/min-cut.ts';
import { chooseRegion } from '../../../src/passes/checkpoint/per-op.ts';
import { type ChainStage, rotor } from '../../../src/passes/checkpoint/rotor.ts';
import {
  type ForwardValue,
  savedUnderBudget,
} from '../../../src/passes/checkpoint/saved-values.ts';
import { lpText } from '../../../src/solver/milp/encode.ts';
import { parameter } from '../../../src/trace/record/spec.ts';
import type { Tensor } from '../../../src/trace/tensor/tensor.ts';
import { trace } from '../../../src/trace/trace.ts';
import { load, TABLE } from '../../plan/support.ts';
import { FULL } from '../../support/full.ts';
import { leastEvaluations, mirroredChain } from '../remat-search.ts';

const items = (bytes: readonly number[], seconds: readonly number[]) =>
  bytes.map((b, i) => ({ bytes: b, seconds: seconds[i] }));

describe('knapsack over values to keep', () => {
  test.each([
    ['K1', [2, 3, 2, 4, 1], [1, 2, 1, 3, 2], 5, 5, [3, 4]],
    ['K2', [1, 1, 1], [1, 2, 3], 3, 6, [0, 1, 2]],
    ['K3', [10, 20, 30], [1, 2, 3], 5, 0, []],
    ['K4', [1, 2, 3], [10, 20, 30], 1, 10, [0]],
    ['K5', [1, 1, 1], [2, 2, 2], 2, 4, [0, 1]],
    ['K6', [0, 2, 3], [5, 2, 3], 5, 10, [0, 1, 2]],
    ['K7', [1, 2, 3], [0, 2, 3], 3, 3, [2]],
    ['K8', [100, 200, 300], [1000, 2000, 3000], 500, 5000, [1, 2]],
    ['K9', [0.5, 1.5, 2], [1, 2, 3], 2, 3, [0, 1]],
    ['K10', [], [], 10, 0, []],
    ['K11', [1, 2, 3], [1, 2, 3], 0, 0, []],
    ['K12', [0, 0, 0], [1, 2, 3], 0, 6, [0, 1, 2]],
    ['K13', [1, 2, 3], [0, 0, 0], 6, 0, []],
  ] as const)('%s', (_, bytes, seconds, limit, value, kept) => {
    const choice = bestKept(items(bytes, seconds), limit);
    expect(choice.savedSeconds).toBe(value);
    expect(choice.kept).toEqual(kept);
    expect(choice.keptBytes).toBe(kept.reduce((sum: number, i) => sum + (bytes[i] ?? NaN), 0));
  });

  test('exact by brute force, never below the greedy choice, rising with the limit', () => {
    const item = fc.record({ bytes: fc.nat(30), seconds: fc.nat(20) });
    fc.assert(
      fc.property(fc.array(item, { maxLength: 10 }), fc.nat(120), (list, limit) => {
        let best = 0;
        for (let mask = 0; mask < 1 << list.length; mask++) {
          const chosen = list.filter((_, i) => (mask & (1 << i)) !== 0);
          if (chosen.reduce((sum, v) => sum + v.bytes, 0) > limit) continue;
          best = Math.max(
            best,
            chosen.reduce((sum, v) => sum + v.seconds, 0),
          );
        }
        const choice = bestKept(list, limit);
        expect(choice.savedSeconds).toBe(best);
        expect(choice.kept.reduce((sum, i) => sum + list[i].bytes, 0)).toBeLessThanOrEqual(limit);
        expect(choice.kept.reduce((sum, i) => sum + list[i].seconds, 0)).toBe(best);
        expect(greedyKept(list, limit).savedSeconds).toBeLessThanOrEqual(best);
        expect(bestKept(list, limit + 5).savedSeconds).toBeGreaterThanOrEqual(best);
      }),
    );
  });

  test('figures that make no sense are refused', () => {
    expect(() => bestKept([{ bytes: -1, seconds: 1 }], 3)).toThrow(/value 0 has -1 bytes/);
    expect(() => bestKept([], -3)).toThrow(/limit/);
  });
});

describe('evaluator', () => {
  const edges = [
    ['node1', 'node2'],
    ['node2', 'node3'],
    ['node3', 'node4'],
    ['node4', 'node5'],
    ['node5', 'output'],
    ['node1', 'output'],
  ];
  const nodes = ['node1', 'node2', 'node3', 'node4', 'node5', 'output'].map((name) => ({
    name,
    inputs: edges.filter(([, to]) => to === name).map(([from]) => from),
  }));
  const graph = recomputeGraph({ nodes }, [
    { name: 'node1', bytes: 0.1, seconds: 100 },
    { name: 'node2', bytes: 0.2, seconds: 50 },
    { name: 'node5', bytes: 0.2, seconds: 51 },
  ]);

  test('values reduced to the recomputable ones', () => {
    expect(graph.values.map((v) => v.needs)).toEqual([[], [0], [1]]);
    expect(() => recomputeGraph({ nodes }, [{ name: 'node9', bytes: 1, seconds: 1 }])).toThrow(
      /not a node of the program/,
    );
  });

  test('keep node 1: memory with and without what the backward pass recomputes', () => {
    const { recomputeSeconds, keptBytes, backwardPeakBytes, trace } = evaluateKept(graph, [0]);
    expect([recomputeSeconds, keptBytes]).toEqual([101, 0.1]);
    expect(backwardPeakBytes).toBeCloseTo(0.5, 12);
    [0.1, 0.3, 0.5, 0.3, 0.1, 0].forEach((bytes, i) =>
      expect(trace[i].bytes).toBeCloseTo(bytes, 12),
    );
    expect(trace.map((t) => t.event)).toEqual([
      'start of the backward pass',
      'recompute node5',
      'recompute node2 for node5',
      'drop node5',
      'drop node2',
      'drop node1',
    ]);
  });

  test('no checkpointing keeps .5 and all of it takes 201', () => {
    expect(evaluateKept(graph, [0, 1, 2]).keptBytes).toBeCloseTo(0.5, 12);
    expect(evaluateKept(graph, []).recomputeSeconds).toBe(201);
  });

  test.each([
    [0.1, 0.1],
    [0.2, 0.1],
    [0.3, 0.3],
    [0.4, 0.4],
    [0.5, 0.4],
  ])('budget at the knee up to %d: %d', (largest, knee) => {
    // The published case answers at five budgets only and keeps everything at any other.
    const answers = new Map([
      [0.1, [0]],
      [0.2, [0]],
      [0.3, [0, 2]],
      [0.4, [0, 2]],
    ]);
    expect(kneeBudget(graph, (budget) => answers.get(budget) ?? [0, 1, 2], 0.1, largest, 5)).toBe(
      knee,
    );
  });
});

describe('saved values under a budget fraction', () => {
  /**
   * A program of matmuls (`mm`, bytes and FLOPs in units) and cosines, all of whose gradients are
   * wanted.
   */
  class Program {
    readonly values: ForwardValue[] = [];
    input(): number {
      return (
        this.values.push({
          name: `x${this.values.length}`,
          bytes: 1,
          seconds: 0,
          inputs: [],
          isInput: true,
        }) - 1
      );
    }
    /** Its gradient reads the input again in a pointwise kernel. */
    cos(of: number): number {
      this.values[of] = { ...this.values[of], readInBackward: true };
      const { bytes } = this.values[of];
      return (
        this.values.push({ name: `cos${this.values.length}`, bytes, seconds: 0, inputs: [of] }) - 1
      );
    }
    /** The gradient of the weight reads the left operand in a matmul. */
    mm(of: number, bytes: number, flops: number): number {
      this.values[of] = { ...this.values[of], readInBackward: true, readByExpensive: true };
      return (
        this.values.push({
          name: `mm${this.values.length}`,
          bytes,
          seconds: flops,
          inputs: [of],
          expensive: true,
        }) - 1
      );
    }
  }
  const at = (program: Program, budget: number): readonly [number, number] => {
    const { savedBytes, recomputeSeconds } = savedUnderBudget(program.values, budget);
    return [savedBytes, recomputeSeconds];
  };

  test('P1 a cosine in front of a matmul is recomputed for free', () => {
    const p = new Program();
    p.mm(p.cos(p.input()), 1, 1);
    expect(at(p, 1)).toEqual([1, 0]);
    expect(at(p, 0.5)).toEqual([0, 0]);
  });

  test('P2 five matmuls and cosines', () => {
    const p = new Program();
    let x = p.cos(p.input());
    for (let i = 0; i < 5; i++) x = p.cos(p.mm(x, 1, 1));
    for (let k = 0; k <= 10; k++) {
      const expected = k <= 5 ? [k, 5 - k] : k < 10 ? [5, 0] : [10, 0];
      expect(at(p, k / 10), `budget ${k}/10`).toEqual(expected);
    }
  });

  const pairs = (list: readonly (readonly [bytes: number, flops: number])[]): Program => {
    const p = new Program();
    for (const [bytes, flops] of list) p.cos(p.mm(p.input(), bytes, flops));
    return p;
  };

  test('P3 every reachable size is reached', () => {
    for (const [widths, reachable] of [
      [
        [11, 3, 4, 2],
        [18, 17, 16, 15, 14, 13, 11, 7, 6, 5],
      ],
      [
        [3, 5, 11, 17, 14],
        [42, 30, 19, 8, 3],
      ],
    ] as const) {
      const p = pairs(widths.map((w) => [w, w]));
      const total = widths.reduce((a: number, b) => a + b, 0);
      expect(at(p, 1)).toEqual([total, 0]);
      for (const size of reachable) expect(at(p, size / total)).toEqual([size, total - size]);
    }
  });

  test('P4, P5 the cheaper matmul is recomputed', () => {
    // Outputs of (B, O): B x O units; work B x B x O.
    const shapes = (list: readonly (readonly [number, number])[]) =>
      pairs(list.map(([b, o]) => [b * o, b * b * o]));
    expect(
      at(
        shapes([
          [1, 4],
          [2, 2],
        ]),
        1,
      ),
    ).toEqual([8, 0]);
    expect(
      at(
        shapes([
          [1, 4],
          [2, 2],
        ]),
        0.5,
      ),
    ).toEqual([4, 4]);
    const three = shapes([
      [4, 4],
      [6, 2],
      [2, 6],
    ]);
    expect(at(three, 1)).toEqual([40, 0]);
    expect(at(three, 28 / 40)).toEqual([28, 24]);
    expect(at(three, 16 / 40)).toEqual([12, 88]);
  });

  test.each([
    [1, 1, 'matmul'],
    [2, 2, 'matmul'],
    [2, 1, 'matmul'],
    [4, 7, 'matmul'],
    [1, 3, 'attention'],
    [2, 5, 'attention'],
    [4, 9, 'attention'],
  ] as const)(
    'P6 attention against a linear layer at sequence %d, width %d: %s is recomputed',
    (s, d, again) => {
      const p = new Program();
      const x = p.input();
      // Attention is read by the backward of itself and of the matmul; two products of s x s x d.
      p.values.push({
        name: 'attention',
        bytes: s * d,
        seconds: 2 * s * s * d,
        inputs: [x],
        expensive: true,
      });
      p.cos(p.mm(1, s * d, s * d * d));
      expect(at(p, 1)).toEqual([2 * s * d, 0]);
      expect(at(p, 0.6)).toEqual([s * d, again === 'matmul' ? s * d * d : 2 * s * s * d]);
    },
  );

  describe('traced programs, f32 of 512 x 512: a MiB a value', () => {
    const SIDE = [512, 512];
    /** Bytes in MiB, and matmuls that are recomputed. */
    const atBudgets = (
      layers: number,
      cosLast: boolean,
      budgets: readonly number[],
    ): (readonly [number, number])[] => {
      const specs: Record<string, ReturnType<typeof parameter>> = { x: parameter(SIDE) };
      for (let i = 0; i < layers; i++) specs[`w${i}`] = parameter(SIDE);
      const f = (t: Record<string, Tensor>): Tensor => {
        let x = t.x.cos();
        for (let i = 0; i < layers; i++) {
          x = x.matmul(t[`w${i}`]);
          if (cosLast || i + 1 < layers) x = x.cos();
        }
        return x;
      };
      const values = forwardValues(jointGraph(trace(f, specs)), TABLE, loadCluster('dgx-h100'));
      return budgets.map((budget) => {
        const { savedBytes, recomputed } = savedUnderBudget(values, budget);
        return [
          savedBytes / 2 ** 20,
          recomputed.filter((i) => values[i].name.startsWith('mm')).length,
        ];
      });
    };

    test('program P1 keeps one value or none', () => {
      expect(atBudgets(1, false, [1, 0.5])).toEqual([
        [1, 0],
        [0, 0],
      ]);
    });

    test('P2: transposes between a value and the matmul that reads it change nothing', () => {
      const steps = Array.from({ length: 11 }, (_, k) => k);
      expect(
        atBudgets(
          5,
          true,
          steps.map((k) => k / 10),
        ),
      ).toEqual(steps.map((k) => (k <= 5 ? [k, 5 - k] : k < 10 ? [5, 0] : [10, 0])));
    });
  });

  test('on a joint graph: less budget, less saved, more recomputed; what is saved suffices', () => {
    const values = forwardValues(
      load('torch/llama-tiny/joint.expanded'),
      TABLE,
      loadCluster('dgx-h100'),
    );
    let bytes = Infinity;
    let seconds = -1;
    for (const budget of [1, 0.9, 0.75, 0.5, 0.25, 0.1, 0]) {
      const choice = savedUnderBudget(values, budget);
      expect(choice.savedBytes).toBeLessThanOrEqual(bytes);
      expect(choice.recomputeSeconds).toBeGreaterThanOrEqual(seconds);
      bytes = choice.savedBytes;
      seconds = choice.recomputeSeconds;
      const there = new Set(choice.saved);
      const again = new Set(choice.recomputed);
      for (const i of again)
        for (const j of values[i].inputs)
          expect(there.has(j) || again.has(j) || values[j].isInput).toBe(true);
      values.forEach((v, i) => {
        if (v.readInBackward === true)
          expect(there.has(i) || again.has(i) || v.isInput, v.name).toBe(true);
        if (v.once === true) expect(again.has(i)).toBe(false);
      });
    }
    expect(bytes).toBe(0);
    expect(savedUnderBudget(values, 1).savedBytes).toBeGreaterThan(1000);
    expect(() => savedUnderBudget(values, 1.5)).toThrow(/between 0 and 1/);
    expect(() =>
      forwardValues(load('torch/llama-tiny/export.readable'), TABLE, loadCluster('dgx-h100')),
    ).toThrow(/no backward pass/);
  });

  test('least node cut, by brute force', () => {
    const problem = fc.record({
      weights: fc.array(fc.nat(9), { minLength: 2, maxLength: 7 }),
      pairs: fc.array(fc.tuple(fc.nat(6), fc.nat(6)), { maxLength: 14 }),
    });
    fc.assert(
      fc.property(problem, ({ weights, pairs: list }) => {
        const n = weights.length;
        const edges = list.filter(([a, b]) => a < n && b < n && a !== b);
        const separated = (mask: number): boolean => {
          if ((mask & 1) !== 0) return true;
          const seen = new Set([0]);
          for (const v of seen)
            for (const [a, b] of edges) if (a === v && (mask & (1 << b)) === 0) seen.add(b);
          return !seen.has(n - 1);
        };
        let best = Infinity;
        for (let mask = 0; mask < 1 << n; mask++)
          if (separated(mask))
            best = Math.min(
              best,
              weights.reduce((sum, w, v) => (mask & (1 << v) ? sum + w : sum), 0),
            );
        const cut = minNodeCut({ weights, edges, sources: [0], sinks: [n - 1] });
        expect(cut.weight).toBe(best);
        expect(separated(cut.nodes.reduce((mask, v) => mask | (1 << v), 0))).toBe(true);
        expect(cut.nodes.reduce((sum, v) => sum + weights[v], 0)).toBe(best);
      }),
    );
    expect(minNodeCut({ weights: [Infinity], edges: [], sources: [0], sinks: [0] }).weight).toBe(
      Infinity,
    );
  });
});

describe('per-operator choice in a region', () => {
  const seconds = [5, 5, 8, 15, 15, 9, 1, 5];
  const bytes = [0, 100, 100, 120, 0, 100, 0, 0];
  const ops = seconds.map((s, i) => ({
    seconds: s,
    bytes: bytes[i],
    ...(i === 6 && { view: true }),
    ...(i === 7 && { inPlaceOf: 5 }),
  }));
  test.each([
    [0, '10001000', 43],
    [100, '10001101', 29],
    [120, '10011000', 28],
    [200, '10101101', 21],
    [220, '10011101', 14],
    [320, '10111101', 6],
    [420, '11111101', 1],
  ])('%i bytes', (limit, keep, recompute) => {
    const choice = chooseRegion(ops, limit);
    expect(choice.keep.map((k) => (k ? '1' : '0')).join('')).toBe(keep);
    expect(choice.recomputeSeconds).toBe(recompute);
    expect(choice.keptBytes).toBeLessThanOrEqual(limit);
  });
  test('an in-place operator of nobody is refused', () => {
    expect(() => chooseRegion([{ seconds: 1, bytes: 1, inPlaceOf: 4 }], 1)).toThrow(
      /not an operator of the region/,
    );
  });
});

const uniform = (length: number, saved: number): ChainStage[] =>
  Array.from({ length }, () => ({
    forwardSeconds: 1,
    backwardSeconds: 2,
    inputSlots: 1,
    savedSlots: saved,
  }));

describe('Rotor on uniform chains', () => {
  test.each([
    [1, 4, 4, '17,14,12'],
    [1, 6, 4, '32,23,21,20,18'],
    [1, 8, 4, '51,34,30,28,27,26,24'],
    [1, 10, 4, '74,46,39,37,35,34,33,32,30'],
    [3, 4, 6, '18,16,15,14,14,14,13,13,12'],
    [3, 6, 6, '33,26,24,23,22,22,21,21,21,20,20,20,19,19,18'],
    [3, 8, 6, '52,38,34,32,31,30,30,29,29,28,28,28,27,27,27,26,26,26,25,25,24'],
    [3, 10, 6, '75,50,45,42,40,39,38,38,37,37,36,36,35,35,35,34,34,34,33,33,33,32'],
  ])('saved size %i, %i stages, from %i slots', (saved, length, first, times) => {
    const stages = uniform(length, saved);
    times
      .split(',')
      .forEach((t, i) =>
        expect(rotor(stages, first + i)?.seconds, `${first + i} slots`).toBe(Number(t)),
      );
    expect(rotor(stages, first - 1)).toBeUndefined();
    expect(rotor(stages, 100)?.seconds).toBe(3 * length);
  });

  test('the schedule is what it costs: every stage back once, in order, from inputs that are there', () => {
    const stage = fc.record({
      forwardSeconds: fc.integer({ min: 1, max: 9 }),
      backwardSeconds: fc.integer({ min: 1, max: 9 }),
      inputSlots: fc.integer({ min: 1, max: 4 }),
      savedSlots: fc.integer({ min: 1, max: 6 }),
    });
    fc.assert(
      fc.property(
        fc.array(stage, { minLength: 1, maxLength: 6 }),
        fc.integer({ min: 4, max: 40 }),
        (stages, slots) => {
          const schedule = rotor(stages, slots);
          const more = rotor(stages, slots + 3);
          if (schedule === undefined) return;
          expect(more?.seconds ?? Infinity).toBeLessThanOrEqual(schedule.seconds);
          const saved = new Set<number>();
          // Boundaries whose value is in memory; 0 is the input of the chain.
          const inputs = new Set([0]);
          let seconds = 0;
          let next = stages.length - 1;
          let current = -1;
          for (const { kind, stage: i } of schedule.steps) {
            if (kind === 'backward') {
              expect(i).toBe(next--);
              expect(saved.delete(i)).toBe(true);
              seconds += stages[i].backwardSeconds;
              continue;
            }
            expect(inputs.has(i) || current === i || saved.has(i - 1), `input of stage ${i}`).toBe(
              true,
            );
            seconds += stages[i].forwardSeconds;
            if (kind === 'forward-keep') inputs.add(i);
            if (kind === 'forward-save') saved.add(i);
            current = i + 1;
          }
          expect(next).toBe(-1);
          expect(seconds).toBe(schedule.seconds);
        },
      ),
      { numRuns: 300 },
    );
  });

  test('figures that are not slots are refused', () => {
    expect(() =>
      rotor([{ forwardSeconds: 1, backwardSeconds: 1, inputSlots: 0.5, savedSlots: 1 }], 4),
    ).toThrow(/whole numbers/);
  });
});

/** The recurrence of the spec, evaluated top-down and without tables. */
function recurrence(stages: readonly ChainStage[], slots: number): number {
  const L = stages.length;
  const x = (i: number): number => (i < L ? stages[i].inputSlots : i === L ? 1 : 0);
  const bar = (i: number): number => (i <= L ? stages[i - 1].savedSlots : 0);
  const f = (i: number): number => (i <= L ? stages[i - 1].forwardSeconds : 0);
  const b = (i: number): number => (i <= L ? stages[i - 1].backwardSeconds : 0);
  const cost = (m: number, i: number, k: number): number => {
    if (i === k) return m >= x(i) + bar(i) ? f(i) + b(i) : Infinity;
    let least = x(k) + x(i);
    for (let j = i + 1; j < k; j++) least = Math.max(least, x(k) + x(j - 1) + x(j));
    if (m < least) return Infinity;
    let best = m >= bar(i) ? cost(m, i, i) + cost(m - bar(i), i + 1, k) : Infinity;
    let run = 0;
    for (let j = i + 1; j <= k; j++) {
      run += f(j - 1);
      if (m >= x(j - 1)) best = Math.min(best, run + cost(m - x(j - 1), j, k) + cost(m, i, j - 1));
    }
    return best;
  };
  return cost(slots - x(0), 1, L + 1);
}

test('the table equals the recurrence on 60 random chains', () => {
  let seed = 12345;
  const random = (n: number): number => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % n;
  let feasible = 0;
  for (let trial = 0; trial < 60; trial++) {
    const stages = Array.from({ length: 1 + random(5) }, () => ({
      forwardSeconds: 1 + random(9),
      backwardSeconds: 1 + random(9),
      inputSlots: 1 + random(3),
      savedSlots: 1 + random(5),
    }));
    for (let slots = 2; slots < 24; slots += 3) {
      const seconds = rotor(stages, slots)?.seconds ?? Infinity;
      expect(seconds).toBe(recurrence(stages, slots));
      if (seconds < Infinity) feasible++;
    }
  }
  expect(feasible).toBeGreaterThan(60);
});

/**
 * Least seconds of a persistent schedule by trying every order of steps: what is kept stays until
 * the backward of its stage has run. Knows nothing of segments: a state is what is in memory.
 */
function leastByTrying(stages: readonly ChainStage[], slots: number): number {
  const L = stages.length;
  // Stages 1..L and the loss; x[i]: output of stage i and, as large, its gradient; bar[i]: output
  // and what the backward needs.
  const x = [...stages.map((s) => s.inputSlots), 1, 0];
  const bar = [0, ...stages.map((s) => s.savedSlots), 0];
  const f = [0, ...stages.map((s) => s.forwardSeconds), 0];
  const b = [0, ...stages.map((s) => s.backwardSeconds), 0];
  const room = slots - x[0];
  if (room < 0) return Infinity;
  /**
   * Outputs kept as inputs and stages saved, a bit each; the output on its way, 0 for none; stages
   * whose backward is to come.
   */
  type State = readonly [kept: number, saved: number, moving: number, left: number];
  const used = ([kept, saved, moving, left]: State): number => {
    let sum = x[left] + (moving > 0 ? x[moving] : 0);
    for (let i = 1; i <= L + 1; i++)
      sum += (((kept >> i) & 1) > 0 ? x[i] : 0) + (((saved >> i) & 1) > 0 ? bar[i] : 0);
    return sum;
  };
  const best = new Map<string, number>();
  const buckets: State[][] = [];
  const reach = (state: State, seconds: number): void => {
    const key = state.join();
    if ((best.get(key) ?? Infinity) <= seconds) return;
    best.set(key, seconds);
    (buckets[seconds] ??= []).push(state);
  };
  reach([0, 0, 0, L + 1], 0);
  for (let seconds = 0; seconds < buckets.length; seconds++)
    // A bucket grows while it is read: steps of no seconds.
    for (const state of buckets[seconds] ?? []) {
      if (best.get(state.join()) !== seconds) continue;
      const [kept, saved, moving, left] = state;
      if (left === 0) return seconds;
      const stays = (i: number): boolean => i === 0 || (((kept | saved) >> i) & 1) > 0;
      if (moving > 0) {
        reach([kept | (1 << moving), saved, 0, left], seconds);
        reach([kept, saved, 0, left], seconds);
      }
      for (let i = 1; i <= left; i++) {
        const from = moving === i - 1 && moving > 0;
        if (i <= L && (from || (moving === 0 && stays(i - 1))) && used(state) + x[i] <= room)
          reach([kept, saved, i, left], seconds + f[i]);
        if (
          moving === 0 &&
          stays(i - 1) &&
          ((saved >> i) & 1) === 0 &&
          used(state) + bar[i] <= room
        )
          reach([kept, saved | (1 << i), 0, left], seconds + f[i]);
      }
      if (moving === 0 && ((saved >> left) & 1) > 0 && stays(left - 1) && used(state) <= room)
        reach([kept & ~(1 << (left - 1)), saved & ~(1 << left), 0, left - 1], seconds + b[left]);
    }
  return Infinity;
}

test('the recurrence equals trying every order of steps on random chains', () => {
  let seed = 777;
  const random = (n: number): number => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % n;
  let feasible = 0;
  let infeasible = 0;
  for (let trial = 0; trial < (FULL ? 60 : 20); trial++) {
    const length = 1 + random(5);
    const inputs = Array.from({ length }, () => 1 + random(3));
    const stages = inputs.map((inputSlots, i) => ({
      forwardSeconds: 1 + random(5),
      backwardSeconds: 1 + random(5),
      inputSlots,
      // What is saved of a stage has its output in it.
      savedSlots: (inputs[i + 1] ?? 1) + random(4),
    }));
    for (let slots = 2; slots < 24; slots += 2) {
      const seconds = leastByTrying(stages, slots);
      expect(rotor(stages, slots)?.seconds ?? Infinity, JSON.stringify([stages, slots])).toBe(
        seconds,
      );
      if (seconds < Infinity) feasible++;
      else infeasible++;
    }
  }
  const least = FULL ? 60 : 20;
  expect(feasible).toBeGreaterThan(least);
  expect(infeasible).toBeGreaterThan(least);
});

const CHECKMATE: readonly (readonly [n: number, evaluations: readonly number[]])[] = [
  [2, [6, 5]],
  [3, [10, 8, 7]],
  [4, [15, 11, 10, 9]],
  [5, [21, 14, 13, 12, 11]],
  [6, [28, 18, 16, 15, 14, 13]],
  [7, [36, 22, 19, 18, 17, 16, 15]],
];

describe('Checkmate on the mirrored chain', () => {
  test.each(CHECKMATE)('by search, n = %i', (n, evaluations) => {
    const graph = mirroredChain(n);
    evaluations.forEach((e, i) =>
      expect(leastEvaluations(graph, 3 + i), `budget ${3 + i}`).toBe(e),
    );
    expect(leastEvaluations(graph, 2)).toBeUndefined();
    expect(evaluations.at(-1)).toBe(2 * n + 1);
  });

  test.each(CHECKMATE.filter(([n]) => n <= (FULL ? 5 : 3)))(
    'by the integer program, n = %i',
    async (n, evaluations) => {
      const graph = mirroredChain(n);
      for (const [i, e] of evaluations.entries()) {
        const answer = await checkmate(graph, 3 + i);
        if (answer.status !== 'optimal') throw new Error(answer.status);
        expect(Math.round(answer.seconds)).toBe(e);
        expect(answer.peakBytes).toBeLessThanOrEqual(3 + i);
        expect(answer.stages.reduce((sum, { computed }) => sum + computed.length, 0)).toBe(e);
      }
      expect(await checkmate(graph, 2)).toEqual({ status: 'infeasible' });
    },
  );

  test('on any chain a persistent schedule takes at least as many evaluations', () => {
    // Unit chain with the mirrored backward as its stages: x = 1, everything a stage saves is its
    // output, f = b = 1.
    for (let n = 2; n <= 6; n++)
      for (let slots = 3; slots < 10; slots++) {
        const stages = Array.from({ length: n }, () => ({
          forwardSeconds: 1,
          backwardSeconds: 1,
          inputSlots: 1,
          savedSlots: 1,
        }));
        const persistent = rotor(stages, slots);
        if (persistent === undefined) continue;
        // Nodes 0..n are the input and the outputs of the stages; the input is there for the chain,
        // and one node here.
        const free = leastEvaluations(mirroredChain(n), slots);
        expect(free).toBeDefined();
        expect(persistent.seconds + 1).toBeGreaterThanOrEqual(free ?? Infinity);
      }
  });

  test('the same on chains of random times', () => {
    const seconds = fc.integer({ min: 1, max: 9 });
    const times = fc.array(fc.tuple(seconds, seconds), { minLength: 2, maxLength: 6 });
    let compared = 0;
    fc.assert(
      fc.property(times, fc.integer({ min: 3, max: 9 }), (list, slots) => {
        const stages = list.map(([f, b]) => ({
          forwardSeconds: f,
          backwardSeconds: b,
          inputSlots: 1,
          savedSlots: 1,
        }));
        const persistent = rotor(stages, slots);
        if (persistent === undefined) return;
        compared++;
        // Node k is the output of stage k, node 0 the input, which is there; the last n are the
        // backward passes, last stage first.
        const all = [0, ...list.map(([f]) => f), ...list.map(([, b]) => b).reverse()];
        const { nodes } = mirroredChain(list.length);
        const free = leastEvaluations(
          { nodes: nodes.map((node, k) => ({ ...node, seconds: all[k] })) },
          slots,
        );
        expect(free).toBeDefined();
        expect(persistent.seconds).toBeGreaterThanOrEqual(free ?? Infinity);
      }),
      { numRuns: 60 },
    );
    expect(compared).toBeGreaterThan(20);
  });

  test('the program as text says the same to a solver of its own', async () => {
    const highs = await highsLoader();
    const solution = highs.solve(lpText(checkmateProgram(mirroredChain(3), 4)));
    // Seconds are shares of those of the longest node, here 1.
    expect([solution.Status, Math.round(solution.ObjectiveValue)]).toEqual(['Optimal', 8]);
  });

  test('on graphs of any sizes and times: within the limit, never below the search, infeasible only where it is', async () => {
    let [solved, refused] = [0, 0];
    for (let seed = 1; seed <= (FULL ? 12 : 4); seed++) {
      let state = seed * 7919;
      const draw = (most: number): number => (state = (state * 48271) % 2147483647) % most;
      const nodes = Array.from({ length: 6 }, (_, k) => ({
        bytes: 1 + draw(4),
        seconds: 1 + draw(5),
        needs: [...new Set(k === 0 ? [] : [k - 1, draw(k)])],
      }));
      for (const limit of [5, 8, 12]) {
        const answer = await checkmate({ nodes }, limit);
        const free = leastEvaluations({ nodes }, limit);
        if (answer.status === 'infeasible') {
          refused++;
          continue;
        }
        solved++;
        expect(answer.peakBytes).toBeLessThanOrEqual(limit);
        expect(answer.seconds).toBeGreaterThanOrEqual(free ?? Infinity);
      }
      const all = await checkmate({ nodes }, 100);
      expect(all).toMatchObject({
        status: 'optimal',
        seconds: nodes.reduce((sum, v) => sum + v.seconds, 0),
      });
    }
    expect(solved).toBeGreaterThan(FULL ? 5 : 1);
    expect(refused).toBeGreaterThan(FULL ? 5 : 1);
  });

  test('what is no such graph is refused', async () => {
    const node = { bytes: 1, seconds: 1, needs: [] };
    await expect(checkmate({ nodes: [] }, 3)).rejects.toThrow(/no goal/);
    await expect(checkmate({ nodes: [node, { ...node, needs: [1] }] }, 3)).rejects.toThrow(
      /needs 1, which is not before it/,
    );
    await expect(checkmate({ nodes: [{ ...node, bytes: -1 }] }, 3)).rejects.toThrow(/-1 bytes/);
    await expect(checkmate({ nodes: [node] }, 0)).rejects.toThrow(/not a limit/);
    await expect(checkmate({ nodes: new Array(101).fill(node) as never }, 3)).rejects.toThrow(
      /100 nodes at most/,
    );
  });

  test('a graph too large for the search is refused', () => {
    expect(() => leastEvaluations(mirroredChain(12), 5)).toThrow(/24 nodes at most/);
  });
});
