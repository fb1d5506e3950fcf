import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { buildModel } from '../../../src/models/build.ts';
import { knownModelConfig } from '../../../src/models/registry.ts';
import { keptMicrobatches } from '../../../src/simulate/pipeline/closed-forms.ts';
import { playPipeline } from '../../../src/simulate/pipeline/play.ts';
import { defaultMicrobatches } from '../../../src/sweep/pipeline/microbatches.ts';
import {
  type Partition,
  partitionStages,
  type PipelineUnit,
} from '../../../src/sweep/pipeline/partition.ts';
import { layerUnits, unsharded } from '../../../src/sweep/pipeline/units.ts';
import {
  formatPipelineLayout,
  type LayoutPart,
  parsePipelineLayout,
} from '../../../src/trainers/megatron/pipeline-layout.ts';
import { load, TABLE } from '../../plan/support.ts';
import { pipelineSeconds } from '../../support/pipeline-closed-forms.ts';

const unit = (seconds: number, more: Partial<PipelineUnit> = {}): PipelineUnit => ({
  name: 'layer',
  seconds,
  stateBytes: 0,
  activationBytes: 0,
  hopSeconds: 0,
  ...more,
});

function found(partition: Partition): Extract<Partition, { status: 'found' }> {
  if (partition.status !== 'found') throw new Error(partition.reason);
  return partition;
}

/** Every way to cut, in lexicographic order of the cuts. */
function* allCuts(n: number, p: number, first = 1): Generator<number[]> {
  if (p === 1) yield [];
  else
    for (let cut = first; cut <= n - p + 1; cut++)
      for (const rest of allCuts(n, p - 1, cut + 1)) yield [cut, ...rest];
}

describe('stage partition', () => {
  it('ten layers on two to five stages; ties go to the earliest cuts', () => {
    const units = [3, 1, 1, 1, 1, 1, 1, 1, 1, 4].map((s) => unit(s));
    const cut = (stages: number): [number, readonly number[]] => {
      const { seconds, cuts } = found(partitionStages(units, { stages, microbatches: 8 }));
      return [seconds, cuts];
    };
    expect(cut(2)).toEqual([71, [5]]);
    expect(cut(3)).toEqual([50, [3, 8]]);
    expect(cut(4)).toEqual([43, [1, 5, 9]]);
    expect(cut(5)[0]).toBe(43);
  });

  it('is the best of all partitions, the first among equals, with memory, messages and schedules', () => {
    const units = fc.array(
      fc.record({
        seconds: fc.integer({ min: 1, max: 6 }),
        stateBytes: fc.integer({ min: 0, max: 5 }),
        activationBytes: fc.integer({ min: 0, max: 3 }),
        hopSeconds: fc.integer({ min: 0, max: 3 }),
      }),
      { minLength: 5, maxLength: 9 },
    );
    const schedule = fc.constantFrom(
      'gpipe' as const,
      '1f1b' as const,
      'zb-h1' as const,
      'zb-h2' as const,
    );
    fc.assert(
      fc.property(
        units,
        schedule,
        fc.integer({ min: 1, max: 5 }),
        fc.integer({ min: 1, max: 6 }),
        fc.integer({ min: 1, max: 60 }),
        (list, schedule, stages, microbatches, limitBytes) => {
          let best: readonly number[] | undefined;
          let least = Infinity;
          let smallest = Infinity;
          for (const cuts of allCuts(list.length, stages)) {
            const bounds = [0, ...cuts, list.length];
            const parts = cuts.concat(list.length).map((end, s) => list.slice(bounds[s], end));
            const sum = (
              part: typeof list,
              key: 'seconds' | 'stateBytes' | 'activationBytes',
            ): number => part.reduce((n, u) => n + u[key], 0);
            const bytes = parts.map(
              (part, s) =>
                sum(part, 'stateBytes') +
                keptMicrobatches(schedule, { devices: stages, microbatches }, s) *
                  sum(part, 'activationBytes'),
            );
            smallest = Math.min(smallest, Math.max(...bytes));
            if (Math.max(...bytes) > limitBytes) continue;
            const times = parts.map((part) => sum(part, 'seconds'));
            const hops = cuts.reduce((n, end) => n + list[end - 1].hopSeconds, 0);
            const total =
              times.reduce((a, b) => a + b, 0) + hops + (microbatches - 1) * Math.max(...times);
            if (total < least) [least, best] = [total, cuts];
          }
          const answer = partitionStages(
            list.map((u) => ({ name: 'u', ...u })),
            { stages, microbatches, schedule, limitBytes },
          );
          if (best === undefined)
            expect(answer).toMatchObject({ status: 'infeasible', smallestLimitBytes: smallest });
          else expect(answer).toMatchObject({ status: 'found', seconds: least, cuts: best });
        },
      ),
      { numRuns: 300 },
    );
  });

  it('refuses more stages than layers', () => {
    expect(() => partitionStages([unit(1)], { stages: 2, microbatches: 1 })).toThrow(
      /1 layers cannot fill 2/,
    );
    expect(() => partitionStages([unit(1)], { stages: 0, microbatches: 1 })).toThrow(/0 stages/);
  });
});

describe('stages of a model', () => {
  const graph = buildModel(knownModelConfig('llama-3.1-70b'), { batch: 1, seq: 8192 });
  const units = layerUnits(graph, TABLE, unsharded(graph, TABLE, loadCluster('dgx-h100'), 'nccl'));

  it('parameters of Llama-3.1-70B in four stages of 20 layers', () => {
    expect(units.map((u) => u.name).filter((_, i) => i < 2 || i > 79)).toEqual([
      'embedding',
      'model.layers.0',
      'model.layers.79',
      'head',
    ]);
    const bounds = [0, 21, 41, 61, 82];
    const stages = bounds
      .slice(1)
      .map((end, s) => units.slice(bounds[s], end).reduce((n, u) => n + u.parameters, 0));
    expect(stages).toEqual([18_163_761_152, 17_113_088_000, 17_113_088_000, 18_163_769_344]);
    expect(stages.reduce((a, b) => a + b, 0)).toBe(70_553_706_496);
  });

  it('a boundary carries b s h: 128 MiB', () => {
    for (const u of units.slice(0, -1)) expect(u.boundaryBytes).toBe(128 * 2 ** 20);
  });

  it('a limit that fits 19 layers on the last stage moves the cut, and the reason is told', () => {
    // A layer takes one unit of time, embedding and head none: free of limits every stage has 20
    // layers.
    const list = units.map((u, i) =>
      unit(i === 0 || i === 81 ? 0 : 1, { name: u.name, stateBytes: 16 * u.parameters }),
    );
    const request = { stages: 4, microbatches: 8 };
    const free = found(partitionStages(list, request));
    expect(free.cuts).toEqual([21, 41, 61]);
    expect(free.moved).toEqual([]);
    // The first stage fits exactly; the last one has the final norm, 8192 parameters more.
    const limitBytes = free.stages[0].peakBytes;
    expect(free.stages[3].peakBytes - limitBytes).toBe(16 * 8192);
    const tight = found(partitionStages(list, { ...request, limitBytes }));
    expect(tight.cuts[2]).toBe(62);
    expect(tight.stages[3].end - tight.stages[3].first).toBe(20);
    expect(tight.seconds).toBe(free.seconds + 7);
    expect(tight.moved).toHaveLength(2);
    expect(tight.moved[0]).toMatch(
      /^stage 3 with 21 units \(model\.layers\.60 to head\) would need 271 GiB of 271 GiB, 128 KiB too much/,
    );
    expect(tight.moved[1]).toMatch(/cut before stage 3 from 61 to 62/);
    const none = partitionStages(list, { ...request, limitBytes: limitBytes / 2 });
    expect(none).toMatchObject({ status: 'infeasible' });
  });

  it('priced by the graph: no more expensive than equal stages, and the formula is an upper bound of the schedule', () => {
    const list = units.map((u) => unit(3 * u.forwardSeconds, { name: u.name }));
    const { stages, seconds } = found(partitionStages(list, { stages: 4, microbatches: 16 }));
    const bounds = [0, 21, 41, 61, 82];
    const equal = bounds
      .slice(1)
      .map((end, s) => list.slice(bounds[s], end).reduce((n, u) => n + u.seconds, 0));
    expect(seconds).toBeLessThanOrEqual(pipelineSeconds(equal, 16) * (1 + 1e-12));
    expect(seconds).toBeCloseTo(
      pipelineSeconds(
        stages.map((s) => s.seconds),
        16,
      ),
      12,
    );
    const times = stages.map((s) => ({
      forward: s.seconds / 3,
      backwardInput: s.seconds / 3,
      backwardWeight: s.seconds / 3,
    }));
    const run = playPipeline('1f1b', { devices: 4, microbatches: 16 }, { stages: times });
    expect(run.seconds).toBeLessThanOrEqual(seconds * (1 + 1e-9));
    expect(run.seconds).toBeGreaterThan(0.9 * seconds);
  });

  it('a joint graph of PyTorch: equal layers have equal work, and the sums are those of the graph', () => {
    for (const model of ['llama3-8b-4l-b64', 'gpt2-12l', 'bert-base']) {
      const joint = load(`torch/${model}/joint.expanded`);
      const measure = unsharded(joint, TABLE, loadCluster('dgx-h100'), 'nccl');
      const layers = layerUnits(joint, TABLE, measure);
      // Masks may be cut into views in the first layer, and the last one has no layer after it.
      const inner = layers.slice(2, -2);
      for (const u of inner) {
        expect(u.parameters).toBe(inner[0].parameters);
        expect(u.activationBytes).toBe(inner[0].activationBytes);
        expect(u.boundaryBytes).toBe(inner[0].boundaryBytes);
        expect(u.forwardSeconds).toBeCloseTo(inner[0].forwardSeconds, 12);
        expect(u.backwardSeconds).toBeCloseTo(inner[0].backwardSeconds, 12);
      }
      const total = layers.reduce((n, u) => n + u.forwardSeconds + u.backwardSeconds, 0);
      const priced = joint.nodes.reduce((n, node) => n + measure.seconds(node), 0);
      expect(total).toBeCloseTo(priced, 9);
    }
  });

  it('refuses a graph without layers', () => {
    const mlp = load('torch/mlp/joint.expanded');
    expect(() =>
      layerUnits(mlp, TABLE, unsharded(mlp, TABLE, loadCluster('dgx-h100'), 'nccl')),
    ).toThrow(/named after a layer/);
  });
});

describe('layout strings', () => {
  it('a layout of 32 stages is read from its text', () => {
    const text = 'Ettt|(tt|)*29,m|L';
    const layout = parsePipelineLayout(text);
    expect(layout).toHaveLength(32);
    expect(layout[0].join('')).toBe('Ettt');
    expect(layout.slice(1, 30).every((s) => s.join('') === 'tt')).toBe(true);
    expect(layout.slice(30).map((s) => s.join(''))).toEqual(['m', 'L']);
    expect(formatPipelineLayout(layout)).toBe(text.replaceAll(',', ''));
    expect(parsePipelineLayout(text, 61)).toEqual(layout);
    expect(() => parsePipelineLayout(text, 64)).toThrow(/has 61 layers, the model has 64/);
  });

  it('what is printed parses to the same stages', () => {
    const stage = fc.array(fc.constantFrom<LayoutPart>('t', 'm'), { maxLength: 4 });
    fc.assert(
      fc.property(fc.array(stage, { minLength: 1, maxLength: 12 }), (stages) => {
        const layout = stages.map((s) => [...s]);
        layout[0].unshift('E');
        layout[layout.length - 1].push('L');
        expect(parsePipelineLayout(formatPipelineLayout(layout))).toEqual(layout);
      }),
    );
    expect(formatPipelineLayout(parsePipelineLayout('E(t*2|)*3, tL'))).toBe('Ett|(tt|)*2tL');
  });

  it('faults of a pipeline layout have their column', () => {
    const fault = (text: string): unknown => {
      try {
        parsePipelineLayout(text);
      } catch (error) {
        return (
          (error as { details: { position?: unknown } }).details.position ??
          (error as Error).message
        );
      }
      return 'nothing';
    };
    expect(fault('Et|x|L')).toEqual({ line: 1, column: 4 });
    expect(fault('E(tt|L')).toEqual({ line: 1, column: 2 });
    expect(fault('Ett)|L')).toEqual({ line: 1, column: 4 });
    expect(fault('Et*|L')).toEqual({ line: 1, column: 3 });
    expect(fault('Et*0|L')).toEqual({ line: 1, column: 3 });
    expect(fault('tt|L')).toMatch(/0 embeddings/);
    expect(fault('Ett|t')).toMatch(/0 losses/);
    expect(fault('E(((t*9999)*9999)*9999)|L')).toMatchObject({ line: 1 });
  });
});

it('a batch is cut into as many microbatches as divide it, up to four a device, with a sequence for each data rank', () => {
  const counts = [
    [64, 4, 1],
    [6, 1, 1],
    [7, 2, 1],
    [12, 2, 1],
    [1, 8, 1],
    [8, 2, 4],
    [64, 4, 16],
    // No number of them leaves four ranks as many sequences.
    [6, 2, 4],
  ].map(([batch, devices, dataRanks]) => defaultMicrobatches(batch, devices, dataRanks));
  expect(counts).toEqual([16, 3, 7, 6, 1, 2, 4, 6]);
});
