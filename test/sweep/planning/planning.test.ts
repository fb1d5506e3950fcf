import { describe, expect, it } from 'vitest';

import { planningSections } from '../../../src/report/sections/planning.ts';
import { planningText } from '../../../src/report/text/planning.ts';
import { planningOf, type PlanningPoint } from '../../../src/sweep/planning/planning.ts';

/** A point whose step takes so long. */
function point(
  devices: number,
  seconds: number,
  plan: string,
  more: Partial<PlanningPoint> = {},
): PlanningPoint {
  const { globalBatch = 256, sequence = 4096 } = more;
  const tokensPerSecond = (globalBatch * sequence) / seconds;
  return {
    model: 'm',
    cluster: 'c',
    devices,
    sequence,
    globalBatch,
    budgetBytes: 1e9,
    best: {
      plan,
      mesh: `dp=${devices}`,
      seconds,
      peakBytes: 1e8,
      tokensPerSecond,
      tokensPerSecondPerDevice: tokensPerSecond / devices,
      mfu: 0.4,
      microbatch: 1,
      microbatches: 1,
      checkpoint: 'none',
    },
    ...more,
  };
}

describe('curves through points', () => {
  it('strong scaling: the batch stays; efficiency is what a device does of what it did at first', () => {
    const { curves } = planningOf([
      point(16, 5, 'fsdp'),
      point(8, 8, 'fsdp'),
      point(32, 4, 'hsdp'),
    ]);
    expect(curves).toEqual([
      {
        of: 'm, c, sequences of 4096, 256 sequences a step',
        axis: 'devices',
        scaling: 'strong',
        points: [1, 0, 2],
        efficiency: [1, 0.8, 0.5],
        changes: [{ at: 2, from: 'fsdp', to: 'hsdp' }],
      },
    ]);
  });

  it('weak scaling: the batch grows with the devices', () => {
    const grown = (devices: number, seconds: number): PlanningPoint =>
      point(devices, seconds, 'fsdp', { globalBatch: devices });
    const { curves } = planningOf([grown(8, 1), grown(64, 1.25)]);
    expect(curves[0]).toMatchObject({
      scaling: 'weak',
      of: 'm, c, sequences of 4096, 1 sequence a device',
      efficiency: [1, 0.8],
      changes: [],
    });
  });

  it('a curve for each cluster; points without a plan are not part of the efficiency', () => {
    const other = { cluster: 'd' };
    const none = { ...point(8, 1, 'x'), best: null };
    const { curves } = planningOf([
      none,
      point(16, 2, 'fsdp'),
      point(32, 1, 'fsdp'),
      point(8, 3, 'tp', other),
      point(16, 2, 'tp', other),
    ]);
    expect(curves.map((c) => c.efficiency)).toEqual([
      [null, 1, 1],
      [1, 0.75],
    ]);
    expect(curves[0].changes).toEqual([{ at: 1, from: 'no plan fits', to: 'fsdp' }]);
    expect(planningOf([point(8, 1, 'a'), point(8, 1, 'b', other)]).curves).toEqual([]);
  });

  it('the text and the report say the same figures', () => {
    const planning = planningOf([point(8, 8, 'fsdp'), point(16, 5, 'hsdp')]);
    const text = planningText(planning);
    expect(text).toContain('most tokens a second: 16 devices of c');
    expect(text).toMatch(/16 +80.0 % +#+ +fsdp -> hsdp/);
    const blocks = planningSections(planning).flatMap((s) => s.blocks);
    const svg = blocks.flatMap((b) => (b.kind === 'figure' ? [b.svg.html] : [])).join('');
    expect(svg.match(/<circle/g)).toHaveLength(2);
    expect(svg).toContain('hsdp on dp=16');
  });
});
