import { describe, expect, it } from 'vitest';

import { type ModelFacts, modelFacts } from '../../src/recipes/inputs/model-facts.ts';
import { lint, type LintInput, lintPlan } from '../../src/recipes/lint.ts';
import { namedRecipe } from '../../src/recipes/registry.ts';
import { load } from '../plan/support.ts';

const LLAMA: ModelFacts = {
  sequence: 8192,
  hidden: 4096,
  heads: 32,
  kvHeads: 8,
  mlpWidth: 14336,
  vocabulary: 128256,
  layers: 32,
};

function codes(input: Partial<LintInput>): string[] {
  return lint({ sizes: {}, facts: LLAMA, devicesPerHost: 8, ...input }).map(
    (f) => `${f.code} ${f.severity}`,
  );
}

function found(input: Partial<LintInput>, code: string): ReturnType<typeof lint>[number] {
  const finding = lint({ sizes: {}, facts: LLAMA, devicesPerHost: 8, ...input }).find(
    (f) => f.code === code,
  );
  if (finding === undefined) throw new Error(`no ${code}`);
  return finding;
}

describe('the linter', () => {
  it('Ulysses needs a head for every rank', () => {
    expect(codes({ ulysses: 8, facts: { sequence: 8192, heads: 4 } })).toEqual(['ZL05 error']);
    expect(codes({ sizes: { cp: 8 }, facts: { sequence: 8192, heads: 4 } })).toEqual([]);
  });

  it('KV heads: fewer than tp are kept several times, tp that shares no factor is refused', () => {
    const warning = found({ sizes: { tp: 16 }, devicesPerHost: 16 }, 'ZL04');
    expect(warning.severity).toBe('warn');
    expect(warning.values.copies).toBe(2);
    const error = found({ sizes: { tp: 12 }, devicesPerHost: 12 }, 'ZL03');
    expect(error.severity).toBe('error');
    expect(error.nearest).toEqual([8, 16]);
  });

  it('a balanced sequence is cut in two for every rank', () => {
    const finding = found(
      { sizes: { cp: 4 }, balancedContext: true, facts: { ...LLAMA, sequence: 8190 } },
      'ZL06',
    );
    expect(finding.nearest).toEqual([8184, 8192]);
    expect(codes({ sizes: { cp: 4 }, balancedContext: true })).toEqual([]);
  });

  it('the batch has a sample for every data rank', () => {
    const finding = found({ sizes: { dp_shard: 8 }, facts: { ...LLAMA, batch: 4 } }, 'ZL02');
    expect(finding.severity).toBe('error');
    expect(finding.message).toContain('8 data ranks are more than the global batch of 4');
    expect(
      found({ sizes: { dp_shard: 4 }, facts: { ...LLAMA, batch: 10 } }, 'ZL02').nearest,
    ).toEqual([8, 12]);
  });

  it('the linter warns about stages and microbatches that do not divide', () => {
    expect(codes({ sizes: { pp: 3 } })).toEqual(['ZL10 warn']);
    expect(codes({ sizes: { pp: 4 }, virtualStages: 2, microbatches: 6 })).toEqual(['ZL09 error']);
    expect(codes({ sizes: { pp: 64 } })).toEqual(['ZL09 error']);
    expect(codes({ sizes: { pp: 4 }, microbatches: 2 })).toEqual(['ZL10 warn']);
  });

  it('groups across hosts, as the mesh lies over them', () => {
    expect(codes({ sizes: { tp: 8 } })).toEqual([]);
    expect(codes({ sizes: { tp: 8 }, strides: { tp: 2 } })).toEqual(['ZL11 warn']);
    expect(codes({ sizes: { tp: 4 }, strides: { tp: 2 } })).toEqual([]);
    expect(codes({ ulysses: 4, strides: { sp: 1 } })).toEqual([]);
    expect(found({ ulysses: 4, strides: { sp: 8 } }, 'ZL11').message).toBe(
      'sp groups of 4 span hosts of 8 devices: their ranks are 8 devices apart',
    );
  });

  it('hosts, vocabulary, ties, memory', () => {
    expect(codes({ sizes: { tp: 16 } })).toEqual(['ZL04 warn', 'ZL11 warn']);
    expect(found({ sizes: { tp: 8 }, facts: { vocabulary: 50257 } }, 'ZL07').values.padded).toBe(
      50264,
    );
    expect(codes({ sizes: { pp: 2 }, facts: { tied: true } })).toEqual(['ZL14 warn']);
    expect(codes({ peakBytes: 95, budgetBytes: 100 })).toEqual(['ZL15 warn']);
    expect(codes({ peakBytes: 101, budgetBytes: 100 })).toEqual(['ZL15 error']);
    expect(codes({ sequenceParallel: true })).toEqual(['ZL13 info']);
  });
});

describe('experts and sizes', () => {
  it('a fold that does not work out names its equation', () => {
    const sizes = { dp_shard: 4, cp: 2, tp: 2 };
    const three = found({ sizes, ep: 3, facts: {} }, 'ZL08');
    expect(three.message).toContain('16 mod 3');
    expect(three.nearest).toEqual([2, 4]);
    const sixteen = found({ sizes, ep: 16, etp: 2, facts: {} }, 'ZL08');
    expect(sixteen.severity).toBe('error');
    expect(sixteen.message).toContain('ep / cp = 8 does not divide dp_shard 4');
    expect(codes({ sizes, ep: 8, facts: { experts: 12 } })).toEqual(['ZL08 error']);
    // Of 2, 4, 8 and 16, which fold, 6 experts divide over 2 alone.
    expect(found({ sizes, ep: 3, facts: { experts: 6 } }, 'ZL08').message).toMatch(
      /valid values of ep: (1, )?2$/,
    );
    expect(codes({ sizes, ep: 4, facts: { experts: 8 } })).toEqual([]);
  });

  it('one size may be left open, and must come out even', () => {
    expect(
      codes({ devices: 32, sizes: { dp_replicate: 2, dp_shard: -1, cp: 2, tp: 2 }, facts: {} }),
    ).toEqual([]);
    expect(codes({ devices: 32, sizes: { dp_shard: -1, tp: 3 }, facts: {} })).toEqual([
      'ZL01 error',
    ]);
    expect(codes({ devices: 32, sizes: { dp_shard: -1, tp: -1 }, facts: {} })).toEqual([
      'ZL01 error',
    ]);
    expect(codes({ devices: 32, sizes: { dp_shard: 8, tp: 2 }, facts: {} })).toEqual([
      'ZL01 error',
    ]);
  });
});

describe('a recipe and a graph', () => {
  it('sizes are read off the graph', () => {
    expect(modelFacts(load('torch/llama3-8b-2l-b16/joint.expanded'))).toEqual({
      batch: 16,
      sequence: 8192,
      hidden: 4096,
      heads: 32,
      kvHeads: 8,
      mlpWidth: 14336,
      vocabulary: 128256,
      layers: 2,
    });
  });

  it('axes of a plan are what the rules look at', () => {
    const lintOf = (name: string, sizes: number[], facts: ModelFacts): string[] =>
      lintPlan(namedRecipe(name), sizes, facts, 8).map((f) => f.code);
    expect(lintOf('dp+ulysses', [2, 8], { heads: 4 })).toEqual(['ZL05']);
    expect(lintOf('dp+cp', [2, 8], { heads: 4, sequence: 8192 })).toEqual([]);
    expect(lintOf('hsdp', [4, 4], { batch: 8 })).toEqual(['ZL02']);
    expect(lintOf('dp+tp+sp', [2, 8], { ...LLAMA, sequence: 8190 })).toEqual(['ZL06']);
    // Experts lie over devices that read other samples.
    expect(lintOf('dp+ep', [2, 4], { batch: 8, experts: 4 })).toEqual([]);
    expect(lintOf('dp+ep', [2, 4], { batch: 4, experts: 4 })).toEqual(['ZL02']);
    expect(lintOf('dp+ep', [2, 4], { batch: 8, experts: 6 })).toEqual(['ZL08']);
  });
});
