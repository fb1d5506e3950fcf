import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { passOrder } from '../../src/simulate/pipeline/schedules.ts';
import { ringSeconds, ringSends } from '../../src/step/costs/ring.ts';
import { reaches, tokenExchange } from '../../src/step/costs/token-exchange.ts';
import { GroupMaker } from '../../src/step/data-groups.ts';
import type { LayoutSizes } from '../../src/step/layout.ts';
import {
  beside,
  exchangeBeside,
  passesAlone,
  savedInRun,
  savedInStep,
  type StateMoves,
  tensorBeside,
} from '../../src/step/overlap.ts';
import { type DataGroups, parameterCost } from '../../src/step/states.ts';
import type { Unit } from '../../src/step/unit.ts';
import type { CoreParameter } from '../../src/step/units.ts';
import { keptUnits } from '../../src/sweep/step/stages/selective-recompute.ts';

const cluster = loadCluster('dgx-h100');
const sizes = { pp: 1, dp_replicate: 1, dp_shard: 8, cp: 1, tp: 1, ep: 1 };
const MiB = 2 ** 20;
const groupsOf = (of: LayoutSizes): DataGroups =>
  new GroupMaker('alpha-beta', cluster).groups(of, 'cp');

const still: StateMoves = {
  forwardRoom: 0,
  backwardRoom: 0,
  gatherForward: 0,
  gatherBackward: 0,
  scatter: 0,
  stepSum: 0,
  stepGather: 0,
};

describe('collectives beside compute', () => {
  it('of three units, gathers hide beside the unit before, scatters beside the unit after; the first gather is seen', () => {
    const unit: StateMoves = {
      ...still,
      forwardRoom: 10,
      backwardRoom: 20,
      gatherForward: 4,
      gatherBackward: 4,
      scatter: 6,
    };
    const saved = savedInRun([unit, unit, unit]);
    // Forward the gathers of units 1 and 2; backward those of 0 and 1, and the scatters of 1 and 2.
    // A quarter stays as slowdown.
    expect(saved).toEqual({ hiddenForward: 8, hiddenBackward: 20, forward: 6, backward: 15 });
    const narrow = savedInRun([unit, unit, unit].map((u) => ({ ...u, backwardRoom: 5 })));
    // Unit 1 has both a gather of 4 and a scatter of 6 beside it, in room for 5; unit 2 only the
    // gather.
    expect(narrow.hiddenBackward).toBe(5 + 5 + 4);
  });

  it('a step hides its sums beside the last backward pass but those of the unit that is done last', () => {
    const unit: StateMoves = {
      ...still,
      forwardRoom: 1,
      backwardRoom: 100,
      stepSum: 8,
      stepGather: 8,
    };
    const units = [unit, unit, unit];
    expect(savedInStep(units, [savedInRun(units)])).toBe(0.75 * (16 + 3));
  });

  it('what is hidden is at most the room, and what is left is at most the plain seconds and at least a quarter', () => {
    const time = fc.double({ min: 0, max: 10, noNaN: true });
    const moves = fc.record({
      forwardRoom: time,
      backwardRoom: time,
      gatherForward: time,
      gatherBackward: time,
      scatter: time,
      stepSum: time,
      stepGather: time,
    });
    fc.assert(
      fc.property(fc.array(moves, { minLength: 1, maxLength: 6 }), (units) => {
        const saved = savedInRun(units);
        const sum = (of: (u: StateMoves) => number): number => units.reduce((t, u) => t + of(u), 0);
        expect(saved.hiddenForward).toBeLessThanOrEqual(sum((u) => u.forwardRoom) + 1e-9);
        expect(saved.hiddenBackward).toBeLessThanOrEqual(sum((u) => u.backwardRoom) + 1e-9);
        expect(saved.forward).toBeLessThanOrEqual(0.75 * sum((u) => u.gatherForward) + 1e-9);
        expect(saved.backward).toBeLessThanOrEqual(
          0.75 * sum((u) => u.gatherBackward + u.scatter) + 1e-9,
        );
        const step = savedInStep(units, [saved]);
        expect(step).toBeGreaterThanOrEqual(0);
        expect(step).toBeLessThanOrEqual(0.75 * sum((u) => u.stepSum + u.stepGather) + 1e-9);
      }),
    );
  });

  it('tensor collectives in 4 parts: the first is in plain view, the others as far as products reach', () => {
    const pass = { compute: 50, communication: 12, products: 40, tensorParts: 8, kernels: 0 };
    expect(tensorBeside(pass, 4)).toEqual({ seconds: 2 + 0.25 * 6, hidden: 6 });
    expect(tensorBeside({ ...pass, products: 5 }, 4)).toEqual({
      seconds: 2 + 2 + 0.25 * 4,
      hidden: 4,
    });
    expect(beside(3, 0)).toEqual({ seconds: 3, hidden: 0 });
  });
});

describe('a ring of keys and values', () => {
  const ring = { ranks: 4, blockBytes: 2, hop: (bytes: number) => bytes };

  it('n - 1 sends forward, the same again and n of the gradients backward', () => {
    // Attention so short that it hides next to nothing.
    const pass = { seconds: 0, attentionSeconds: 1e-12 };
    expect(ringSeconds(pass, ring, 'forward').seconds).toBeCloseTo(3 * 2, 9);
    expect(ringSeconds(pass, ring, 'backward').seconds).toBeCloseTo(3 * 2 + 4 * 2, 9);
    expect([ringSends(4, 'forward'), ringSends(4, 'backward')]).toEqual([3, 7]);
  });

  it('long attention hides all but its slowdown and the last gradients', () => {
    const pass = { seconds: 0, attentionSeconds: 1000 };
    expect(ringSeconds(pass, ring, 'forward')).toEqual({ seconds: 0.25 * 6, hidden: 6 });
    expect(ringSeconds(pass, ring, 'backward')).toEqual({ seconds: 0.25 * 12 + 2, hidden: 12 });
  });
});

describe('tokens to experts', () => {
  const routed = { experts: 128, active: 8 };

  it.each([
    [4, 2, 2],
    [6, 3, 3],
    [8, 2, 4],
    [8, 3, 2],
  ])(
    'of %i experts a token meets %i: the share of choices that reach one of %i hosts',
    (experts, active, hosts) => {
      let [all, reached] = [0, 0];
      for (let set = 0; set < 2 ** experts; set++) {
        const chosen = Array.from({ length: experts }, (_, e) => e).filter(
          (e) => (set >> e) % 2 === 1,
        );
        if (chosen.length !== active) continue;
        all++;
        if (chosen.some((e) => e < experts / hosts)) reached++;
      }
      expect(reaches(experts, active, hosts)).toBeCloseTo(reached / all, 12);
    },
  );

  it.each([
    [8, 3, 4, 4, 2],
    [8, 3, 2, 4, 2],
    [12, 3, 6, 3, 2],
    [12, 4, 3, 4, 2],
    [12, 2, 4, 6, 3],
  ])(
    'node-limited: of %i experts a token meets %i, on %i hosts, from %i groups of which it keeps some',
    (experts, active, hosts, count, kept) => {
      // Every choice of groups, and of experts in them.
      const bits = (set: number): number => [...set.toString(2)].filter((b) => b === '1').length;
      let [share, choices, most] = [0, 0, 0];
      for (let open = 0; open < 2 ** count; open++) {
        if (bits(open) !== kept) continue;
        for (let set = 0; set < 2 ** experts; set++) {
          const chosen = Array.from({ length: experts }, (_, e) => e).filter(
            (e) => (set >> e) % 2 === 1,
          );
          if (
            chosen.length !== active ||
            chosen.some((e) => (open >> Math.floor((e * count) / experts)) % 2 === 0)
          )
            continue;
          const reached = new Set(chosen.map((e) => Math.floor((e * hosts) / experts))).size;
          choices++;
          share += reached / hosts;
          most = Math.max(most, reached);
        }
      }
      expect(reaches(experts, active, hosts, { count, kept })).toBeCloseTo(share / choices, 12);
      if (hosts === count) expect(most).toBeLessThanOrEqual(kept);
    },
  );

  it('DeepSeek-V3: 8 of 256 experts in 4 of 8 groups reach 3.6 of 8 hosts instead of 5.3, and the dispatch sends so much less', () => {
    expect(8 * reaches(256, 8, 8)).toBeCloseTo(5.3, 1);
    // On each of the four hosts 32 of the 128 experts that are left.
    const none = Array.from({ length: 8 }, (_, k) => (96 - k) / (128 - k)).reduce(
      (a, b) => a * b,
      1,
    );
    expect(8 * reaches(256, 8, 8, { count: 8, kept: 4 })).toBeCloseTo(4 * (1 - none), 12);
    const over = groupsOf({ ...sizes, dp_shard: 64, ep: 64 });
    const [free, limited] = [undefined, { count: 8, kept: 4 }].map((limit) =>
      tokenExchange(over, 448 * MiB, {
        experts: 256,
        active: 8,
        ...(limit === undefined ? {} : { limit }),
      }),
    );
    const across = (448 / 8) * 7 * (reaches(256, 8, 8) - reaches(256, 8, 8, { count: 8, kept: 4 }));
    expect((free.sentBytes - limited.sentBytes) / MiB).toBeCloseTo(across, 9);
    expect(limited.seconds).toBeLessThan(free.seconds);
  });

  it('exchanges of a pass hide beside the other pass of another microbatch, as far as its compute reaches', () => {
    expect(exchangeBeside({ forward: 4, backward: 4 }, { forward: 3, backward: 10 })).toEqual({
      hiddenForward: 4,
      hiddenBackward: 3,
      savedForward: 3,
      savedBackward: 2.25,
    });
    expect(
      exchangeBeside({ forward: 4, backward: 4 }, { forward: 0, backward: 0 }).savedForward,
    ).toBe(0);
  });

  it.each([
    [1, 1, 6],
    [4, 2, 8],
    [8, 4, 16],
    [4, 2, 1],
  ])(
    'of %i devices with %i chunks and %i microbatches the passes that run alone are those before the first backward pass, and one',
    (devices, chunks, microbatches) => {
      const first = passOrder(chunks > 1 && microbatches % devices === 0 ? 'interleaved' : '1f1b', {
        devices,
        microbatches,
        ...(chunks > 1 && microbatches % devices === 0 ? { chunks } : {}),
      })[0];
      if (chunks > 1 && microbatches % devices !== 0) {
        // Fewer passes than it takes to fill the pipeline: all are alone.
        expect(passesAlone(devices, chunks, microbatches)).toBe(microbatches * chunks);
        return;
      }
      // Interleaved 1F1B starts a backward pass after one forward pass beyond the filling.
      expect(passesAlone(devices, chunks, microbatches)).toBe(
        first.findIndex((p) => p.kind === 'B'),
      );
    },
  );

  it('inside a host every copy goes its own way; over hosts a token goes to each host once', () => {
    const payload = 4096 * 8 * 2048 * 2;
    const inside = groupsOf({ ...sizes, ep: 8 });
    expect(inside.forwarding).toBeUndefined();
    expect(tokenExchange(inside, payload, routed).sentBytes).toBe((7 / 8) * payload);
    // A token that crosses once for all of its experts on a device sends as many copies as there
    // are such devices.
    const once = tokenExchange(inside, payload, routed, true);
    expect(once.sentBytes).toBeCloseTo((7 / 8) * (payload / 8) * 8 * reaches(128, 8, 8), 6);
    expect(once.seconds).toBeLessThan(tokenExchange(inside, payload, routed).seconds);
    const over = groupsOf({ ...sizes, dp_shard: 16, ep: 16 });
    const { seconds, sentBytes } = tokenExchange(over, payload, routed);
    // One token of eight copies to the other host, all copies from there to the devices of a host.
    expect(sentBytes).toBeCloseTo((payload / 8) * reaches(128, 8, 2) + (7 / 8) * payload, 6);
    const flat = over.expert.collectives.seconds(
      'all_to_all',
      payload,
      over.expert.mesh.resolve(['ep']),
    );
    expect(seconds).toBeLessThan(flat);
    // With one expert a token there is one copy and nothing to save: the plain all-to-all is as
    // good.
    const single = tokenExchange(over, payload / 8, { experts: 128, active: 1 });
    expect(single.seconds).toBeLessThanOrEqual(
      over.expert.collectives.seconds('all_to_all', payload / 8, over.expert.mesh.resolve(['ep'])),
    );
  });
});

describe('FSDP that gathers once a step', () => {
  const p: CoreParameter = {
    name: 'w',
    unit: 1,
    kind: 'dense',
    localElements: 8 * MiB,
    localRows: 1024,
    rows: 1024,
    rowWays: 1,
    itemBytes: 2,
    state: { parameter: 2, gradient: 2, optimizer: 12 },
    usedForward: true,
    usedBackward: true,
    trained: true,
    pending: [],
  };
  const groups = groupsOf(sizes);

  it('sends 28 MiB of 16 over 8 ranks with reshard=false, 42 with two gathers, and keeps what it gathers', () => {
    const sent = (once: boolean): number => {
      const { perMicrobatch, perStep } = parameterCost(p, 'fsdp', groups, once);
      return [...perMicrobatch, ...perStep].reduce((total, m) => total + m.sentBytes, 0) / MiB;
    };
    expect([sent(true), sent(false)]).toEqual([28, 42]);
    const { parameterBytes, gradientBytes, optimizerBytes, gatheredBytes } = parameterCost(
      p,
      'fsdp',
      groups,
      true,
    );
    expect(
      [parameterBytes, gradientBytes, optimizerBytes, gatheredBytes].map((b) => b / MiB),
    ).toEqual([18, 16, 12, 0]);
  });
});

describe('results are recomputed in as few units as it takes', () => {
  const unit = (keptBytes: number, temporaryBytes: number): Unit => ({
    ...still,
    forward: 1,
    input: 1,
    weight: 1,
    compute: 3,
    exchange: 0,
    pairedForward: 0,
    pairedBackward: 0,
    parameterBytes: 0,
    gradientBytes: 0,
    optimizerBytes: 0,
    keptBytes,
    temporaryBytes,
    prefetchedBytes: 0,
    update: 0,
    boundaryBytes: 0,
    boundary: 0,
  });

  it('the most last units of every chunk that fit, by trying all', () => {
    const size = fc.integer({ min: 0, max: 20 });
    const chunk = fc.array(fc.record({ strict: size, more: size, temporary: size }), {
      minLength: 1,
      maxLength: 5,
    });
    fc.assert(
      fc.property(
        fc.array(chunk, { minLength: 1, maxLength: 3 }),
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 0, max: 400 }),
        (chunks, inFlight, budget) => {
          const strict = chunks.map((list) =>
            list.map((u) => unit(u.strict, u.temporary + u.more)),
          );
          const plain = chunks.map((list) => list.map((u) => unit(u.strict + u.more, u.temporary)));
          const peak = (counts: readonly number[]): number => {
            const mixed = chunks.map((list, c) =>
              list.map((_, i) => (i < list.length - counts[c] ? strict[c][i] : plain[c][i])),
            );
            return (
              10 +
              inFlight * Math.max(...mixed.map((l) => l.reduce((t, u) => t + u.keptBytes, 0))) +
              Math.max(...mixed.flat().map((u) => u.temporaryBytes))
            );
          };
          const counts = keptUnits(
            strict,
            plain,
            (bytes) => inFlight * Math.max(...bytes),
            10,
            budget,
          );
          const at = (r: number): number[] => chunks.map((list) => Math.min(r, list.length));
          const r = Math.max(...counts);
          expect(counts).toEqual(at(r));
          if (r > 0) expect(peak(counts)).toBeLessThanOrEqual(budget);
          if (r < Math.max(...chunks.map((l) => l.length)))
            expect(peak(at(r + 1))).toBeGreaterThan(budget);
        },
      ),
    );
  });
});
