import { describe, expect, it } from 'vitest';

import { loadCluster } from '../../../src/cost/hardware/load-cluster.ts';
import { parseModelConfig } from '../../../src/models/families.ts';
import { tokenExchange } from '../../../src/step/costs/token-exchange.ts';
import { GroupMaker } from '../../../src/step/data-groups.ts';
import { type LayoutSizes } from '../../../src/step/layout.ts';
import { parameterCost } from '../../../src/step/states.ts';
import { type CoreParameter } from '../../../src/step/units.ts';
import { compareModel } from '../../../src/sweep/compare-model.ts';
import { sweepComparison } from '../../../src/sweep/conclude.ts';
import type { SweepQuestion } from '../../../src/sweep/model/question.ts';
import { layerKinds } from '../../../src/sweep/model/representative-layers.ts';
import { coreKey, coreRequest } from '../../../src/sweep/model/types.ts';
import { Front, lessCut } from '../../../src/sweep/step/expert-cuts.ts';
import type { PricedRow } from '../../../src/sweep/step/row-pricer.ts';
import { sweep, type SweepResult } from '../../../src/sweep/sweep.ts';
import { localPool } from '../../../src/sweep/threads/local-pool.ts';
import type { SweepAnswer, SweepPool } from '../../../src/sweep/threads/pool.ts';
import { TABLE } from '../../plan/support.ts';
import { FULL } from '../../support/full.ts';

const one: LayoutSizes = { pp: 1, dp_replicate: 1, dp_shard: 1, cp: 1, tp: 1, ep: 1 };
const maker = new GroupMaker('alpha-beta', loadCluster('dgx-h100'));

/**
 * Folds of 16 devices of two hosts with cuts from none to tp; no group reaches over a host, where
 * tokens are sent otherwise.
 */
const FOLDS: readonly Partial<LayoutSizes>[] = [
  { dp_shard: 4, tp: 4, ep: 4 },
  { dp_shard: 4, tp: 4, ep: 2, etp: 2 },
  { dp_shard: 4, tp: 4, ep: 4, etp: 2 },
  { dp_shard: 2, cp: 2, tp: 4, ep: 4, etp: 2 },
  { dp_shard: 4, tp: 4, ep: 2, etp: 4 },
  { dp_shard: 2, dp_replicate: 2, tp: 4, ep: 2, etp: 4 },
  { dp_shard: 4, tp: 4, etp: 4 },
];

const DEVICES = 16;
const EXPERTS = 8;
const ACTIVE = 2;
/** Bytes of a row. */
const ROW = 64;
const TOKENS = 64;

/** A row of a token for one of its experts, on its way. */
interface Copy {
  readonly device: number;
  readonly token: number;
  readonly expert: number;
}

/**
 * Tokens sent by hand: device ids, no meshes. Inside a replica (ids in a row) the last `etp` ids
 * cut an expert between them, the `ep` runs of them before that have other experts. Tokens of every
 * device meet their experts evenly.
 */
class ByHand {
  readonly sent = {
    exchange: new Array<number>(DEVICES).fill(0),
    gather: new Array<number>(DEVICES).fill(0),
  };
  /** Copies that each device has in the end. */
  readonly has: Copy[][];

  constructor(
    readonly ep: number,
    readonly etp: number,
    isEarly: boolean,
  ) {
    const own = Array.from({ length: DEVICES }, (_, device) =>
      Array.from({ length: TOKENS }, (_, token) => ({ device, token })),
    );
    const copies = (list: readonly { readonly device: number; readonly token: number }[]): Copy[] =>
      list.flatMap((t) =>
        Array.from({ length: ACTIVE }, (_, k) => ({ ...t, expert: (t.token + k) % EXPERTS })),
      );
    if (isEarly) this.has = this.toGroups(this.around(own).map(copies));
    else this.has = this.around(this.toGroups(own.map(copies)));
  }

  /** Each copy to the device with the same part of its expert. */
  private toGroups(rows: readonly Copy[][]): Copy[][] {
    const { ep, etp } = this;
    const arrived = rows.map((): Copy[] => []);
    rows.forEach((list, from) => {
      const group = Math.floor(from / (ep * etp)) * ep * etp;
      for (const copy of list) {
        const to = group + Math.floor(copy.expert / (EXPERTS / ep)) * etp + (from % etp);
        if (to !== from) this.sent.exchange[from] += ROW;
        arrived[to].push(copy);
      }
    });
    return arrived;
  }

  /** Every block once around the ring of the devices that cut the same experts. */
  private around<T>(blocks: readonly (readonly T[])[]): T[][] {
    const { etp } = this;
    const all = blocks.map((b) => [...b]);
    let held = blocks;
    for (let turn = 1; turn < etp; turn++) {
      const next = held.map((): readonly T[] => []);
      held.forEach((block, from) => {
        const to = from - (from % etp) + ((from + 1) % etp);
        this.sent.gather[from] += block.length * ROW;
        next[to] = block;
      });
      held = next;
      held.forEach((block, d) => all[d].push(...block));
    }
    return all;
  }
}

describe('tokens on their way from the dense to the expert mesh', () => {
  it.each(FOLDS)('bytes that leave each device are those of tokens sent by hand: %j', (sizes) => {
    const { ep = 1, etp = 1, dp_replicate = 1 } = sizes;
    const groups = maker.groups({ ...one, ...sizes }, 'cp');
    const routed = { experts: EXPERTS, active: ACTIVE };
    const { moves } = tokenExchange(groups, TOKENS * ACTIVE * ROW, routed);
    const sent = (kind: string): number => moves.find((m) => m.kind === kind)?.sentBytes ?? 0;
    const ways = [false, true].map((isEarly) => new ByHand(ep, etp, isEarly));
    for (const { has } of ways)
      for (let device = 0; device < DEVICES; device++) {
        // Whoever has a part of an expert has every row of it that comes from its replica's slice
        // of the folded devices.
        const first = Math.floor(device / (ep * etp)) * ep * etp;
        const wanted = Array.from({ length: ep * etp }, (_, i) => first + i).flatMap((from) =>
          Array.from({ length: TOKENS }, (_, token) =>
            Array.from({ length: ACTIVE }, (_, k) => (token + k) % EXPERTS),
          )
            .flatMap((experts, token) => experts.map((expert) => ({ device: from, token, expert })))
            .filter(
              ({ expert }) =>
                Math.floor(expert / (EXPERTS / ep)) === Math.floor((device - first) / etp),
            ),
        );
        const text = (c: Copy): string => [c.device, c.token, c.expert].join();
        expect(has[device].map(text).sort()).toEqual(wanted.map(text).sort());
      }
    // Which of the two ways it is shows in what is gathered: copies of tokens, or tokens.
    const way = ways.find(({ sent: s }) => s.gather[0] === sent('all_gather'))!;
    for (let device = 0; device < DEVICES; device++) {
      // There and back; results go round the same ring as summands.
      expect(sent('all_to_all')).toBe(2 * way.sent.exchange[device]);
      expect([sent('all_gather'), sent('reduce_scatter')]).toEqual([
        way.sent.gather[device],
        way.sent.gather[device],
      ]);
    }
    expect(groups.expert.mesh.sizes).toEqual([
      1,
      dp_replicate,
      DEVICES / (dp_replicate * ep * etp),
      ep,
      ...(etp > 1 ? [etp] : []),
    ]);
  });
});

describe('states of experts and the groups that reduce their gradients', () => {
  const PHI = EXPERTS * 48 * 64;
  const stack: CoreParameter = {
    name: 'experts',
    unit: 1,
    kind: 'expert',
    localElements: PHI,
    localRows: EXPERTS,
    rows: EXPERTS,
    rowWays: 1,
    itemBytes: 2,
    state: { parameter: 2, gradient: 2, optimizer: 12 },
    usedForward: true,
    usedBackward: true,
    trained: true,
    pending: [],
  };

  it.each(FOLDS)(
    '16 Phi / (ep etp efsdp) sharded, 16 Phi / (ep etp) replicated, sums over efsdp and replicas: %j',
    (sizes) => {
      const { ep = 1, etp = 1, dp_replicate: replicas = 1 } = sizes;
      const groups = maker.groups({ ...one, ...sizes }, 'cp');
      const efsdp = DEVICES / (replicas * ep * etp);
      const total = (c: ReturnType<typeof parameterCost>): number =>
        c.parameterBytes + c.gradientBytes + c.optimizerBytes;
      const sharded = parameterCost(stack, replicas > 1 ? 'hsdp' : 'fsdp', groups);
      const plain = parameterCost(stack, 'dp', groups);
      expect(total(sharded)).toBe((16 * PHI) / (ep * etp * efsdp));
      expect(total(plain)).toBe((16 * PHI) / (ep * etp));
      const bytes = (2 * PHI) / (ep * etp);
      const ring = (n: number): number => (n - 1) / n;
      const scatters = sharded.perMicrobatch.filter((m) => m.kind === 'reduce_scatter');
      expect(scatters.map((m) => [m.axes, m.sentBytes])).toEqual(
        efsdp === 1 ? [] : [['efsdp', ring(efsdp) * bytes]],
      );
      const n = efsdp * replicas;
      const axes = [
        ...(replicas > 1 ? ['dp_replicate'] : []),
        ...(efsdp > 1 ? ['efsdp'] : []),
      ].join('+');
      expect(plain.perStep.map((m) => [m.kind, m.axes, m.sentBytes])).toEqual(
        n === 1 ? [] : [['all_reduce', axes, 2 * ring(n) * bytes]],
      );
    },
  );
});

const MIXTRAL = {
  model_type: 'mixtral',
  hidden_size: 512,
  intermediate_size: 1536,
  num_attention_heads: 8,
  num_key_value_heads: 8,
  num_hidden_layers: 2,
  vocab_size: 4096,
  num_local_experts: 8,
  num_experts_per_tok: 2,
  torch_dtype: 'bfloat16',
};

const ask = (more: Partial<SweepQuestion> = {}): SweepQuestion => ({
  model: 'small',
  config: JSON.stringify(MIXTRAL),
  devices: 16,
  cluster: 'dgx-h100',
  sequence: 256,
  globalBatch: 16,
  cost: 'alpha-beta',
  ...more,
});

async function both(
  question: SweepQuestion,
): Promise<{ readonly some: SweepResult; readonly all: SweepResult }> {
  const config = parseModelConfig(question.config);
  const kinds = layerKinds(config, { batch: 1, sequence: question.sequence }, TABLE);
  // Both need the same programs.
  const [plain, known] = [
    localPool(question, TABLE, kinds),
    new Map<string, SweepAnswer | undefined>(),
  ];
  const pool: SweepPool = {
    run: async (jobs) => {
      for (const job of jobs) {
        const key = JSON.stringify(job);
        if (!known.has(key)) known.set(key, (await plain.run([job]))[0]);
      }
      return jobs.map((job) => known.get(JSON.stringify(job)));
    },
    close: () => plain.close(),
  };
  const options = { question, config, cluster: loadCluster(question.cluster), kinds, pool };
  return { some: await sweep(options), all: await sweep({ ...options, expertTensor: true }) };
}

const etpOf = ({ row }: PricedRow): number => row.sizes.etp ?? 1;
const textOf = ({ row }: PricedRow): string => `${row.name} ${row.mesh}`;

describe('plans with cut experts that are left out', () => {
  const cases: readonly (readonly [string, Partial<SweepQuestion>])[] = [
    ['2 experts', { config: JSON.stringify({ ...MIXTRAL, num_local_experts: 2 }) }],
    [
      '32 experts, four of them met, little memory',
      {
        config: JSON.stringify({ ...MIXTRAL, num_local_experts: 32, num_experts_per_tok: 4 }),
        memoryBytes: 4e8,
      },
    ],
  ];
  it.each(FULL ? cases : cases.slice(0, 1))(
    'none is the best; priced, each is beaten in seconds and bytes: %s',
    async (_, more) => {
      const question = ask({ devices: 8, globalBatch: 8, ...more });
      const { some, all } = await both(question);
      const priced = new Set(some.priced.map(textOf));
      const left = all.priced.filter((p) => !priced.has(textOf(p)));
      const { worse, beaten } = some.cutsLeftOut!;
      expect(all.cutsLeftOut).toBeUndefined();
      expect(left.length).toBe(worse + beaten);
      expect(worse).toBeGreaterThan(10);
      expect(left.filter((p) => etpOf(p) === 1)).toEqual([]);
      expect(some.priced[0].fits).toBe(true);
      expect(some.priced[0].figures.seconds).toBe(all.priced[0].figures.seconds);
      // The answer says how many, and has etp of every plan.
      const { notes, plans } = sweepComparison(question, some, { whatIf: [] });
      const count = some.priced.filter((p) => etpOf(p) > 1).length;
      expect(notes?.find((n) => n.includes('etp'))).toContain(
        `: ${count} plans priced. ${worse} were left out because wider expert groups`,
      );
      expect(plans.map((p) => [p.mesh, p.layout?.sizes.etp])).toEqual(
        some.priced.map((p) => [p.row.mesh, Number(/etp=(\d+)/.exec(p.row.mesh)?.[1] ?? 1)]),
      );
      const { experts } = parseModelConfig(question.config).architecture.routed!;
      for (const { row, tuning, figures } of left) {
        const { ep, etp = 1, ...dense } = row.sizes;
        const points = [...some.priced.filter((p) => p.fits).map((p) => p.figures)];
        // Folds of the same devices with less cut experts, at the same tuning: whole plans, not the
        // parts that the rule looks at.
        for (let less = 1; less < etp; less++) {
          const [whole, sizes] = [
            (ep * etp) / less,
            { ...dense, ep: (ep * etp) / less, ...(less > 1 ? { etp: less } : {}) },
          ];
          if (etp % less !== 0 || experts % whole !== 0) continue;
          const request = coreRequest(sizes, row.kind, tuning.microbatch);
          const ways = request.axes.reduce((n, a) => n * a.size, 1);
          const core = all.cores.get(coreKey(request))!;
          const other = all.composer.compose({
            core,
            routed: all.routed.get(`${tuning.microbatch} ${ways}`),
            sizes,
            kind: row.kind,
            tuning,
          });
          if (other !== undefined) points.push(other);
        }
        const isBeaten = points.some(
          (p) =>
            p.seconds <= figures.seconds * (1 + 1e-9) &&
            // What memory is left is used to keep more of what would be recomputed.
            (p.peakBytes <= figures.peakBytes || p.unitsAgain < figures.unitsAgain),
        );
        expect([row.name, row.mesh, isBeaten]).toEqual([row.name, row.mesh, true]);
      }
    },
    60_000,
  );

  it('folds that cut less hold the same experts on the same devices', () => {
    expect(lessCut({ ep: 4, etp: 4 }, 8)).toEqual([{ ep: 8, etp: 2 }]);
    expect(lessCut({ ep: 4, etp: 6 }, 24)).toEqual([
      { ep: 24, etp: 1 },
      { ep: 12, etp: 2 },
      { ep: 8, etp: 3 },
    ]);
    expect(lessCut({ ep: 8, etp: 2 }, 8)).toEqual([]);
  });

  it('a front says what is the fastest of so many bytes', () => {
    const front = new Front(
      [
        [30, 1],
        [10, 5],
        [20, 6],
        [10, 7],
        [40, 1],
      ].map(([peakBytes, seconds]) => ({ peakBytes, seconds })),
    );
    expect([9, 10, 29, 30, 99].map((bytes) => front.within(bytes))).toEqual([Infinity, 5, 5, 1, 1]);
  });

  it('a dense model has neither, nor plans that leave no cut experts', async () => {
    const { num_local_experts: _, num_experts_per_tok: __, ...dense } = MIXTRAL;
    const config = JSON.stringify({ ...dense, model_type: 'llama' });
    const options = { table: TABLE, threads: 1, whatIf: false, plans: ['dp'] } as const;
    const found = await compareModel(ask({ devices: 2, globalBatch: 2, config }), options);
    expect(found.plans.map((p) => p.layout?.sizes)).toEqual([{ ...one, dp_shard: 2 }]);
    expect(found.notes?.some((n) => n.includes('etp'))).toBe(false);
    // Nor has one that nobody asks for.
    const named = await compareModel(ask({ devices: 2, globalBatch: 2 }), options);
    expect(named.plans.map((p) => p.layout?.sizes)).toEqual([{ ...one, dp_shard: 2, etp: 1 }]);
    expect(named.notes?.some((n) => n.includes('etp'))).toBe(false);
  }, 60_000);
});
