import type { ModelConfig } from '../../models/families.ts';
import { lint, type Finding } from '../lint.ts';
import { factorizations } from '../meshes.ts';
import type { ModelFacts } from '../model-facts.ts';
import { meshText, planName, type LayoutKind, type LayoutSizes } from './layout.ts';
import type { SweepQuestion } from './question.ts';
import type { StateMode } from './data-ranks.ts';

/** One plan on one mesh, before it is priced. */
export interface LayoutRow {
  readonly name: string;
  readonly mesh: string;
  readonly sizes: LayoutSizes;
  readonly kind: LayoutKind;
  readonly findings: readonly Finding[];
  /** Index in the list of meshes. */
  readonly meshIndex: number;
}

export interface MeshRows {
  readonly mesh: string;
  readonly sizes: readonly number[];
  readonly rows: readonly LayoutRow[];
  readonly refused: readonly { readonly name: string; readonly mesh: string; readonly finding: Finding }[];
}

/** Sizes of a model as the linter asks for them. */
export function factsOf(config: ModelConfig, question: SweepQuestion): ModelFacts {
  const { shape, routed } = config.architecture;
  return {
    batch: question.globalBatch,
    sequence: question.sequence,
    hidden: shape.width,
    heads: shape.heads,
    kvHeads: shape.keyHeads,
    mlpWidth: shape.hidden,
    vocabulary: shape.vocabulary,
    layers: shape.layers,
    ...(routed === undefined ? {} : { experts: routed.experts, expertWidth: routed.hidden }),
  };
}

/**
 * Every ordered factorization (pp, dp, cp, tp) of the devices with the plans on it: all state modes of the data ranks, context
 * parallelism (gathered or in a ring) or Ulysses where the sequence is cut, tensor parallelism with and without a cut residual stream, experts folded
 * over the data and model dims. What the linter stops is listed with its finding.
 *
 * @param tied whether the embedding is also the head
 * @param expertTensor also plans whose experts are cut over as many devices as tp has (`etp`): half as many rows again for routed
 *   models, so they are left out where nobody asks
 */
export function meshRows(
  config: ModelConfig,
  question: SweepQuestion,
  devicesPerHost: number,
  tied = false,
  expertTensor = false,
): MeshRows[] {
  const facts = { ...factsOf(config, question), tied };
  const isRouted = config.architecture.routed !== undefined;
  return factorizations(question.devices, 4).map(([pp, dp, cp, tp], meshIndex): MeshRows => {
    const rows: LayoutRow[] = [];
    const refused: MeshRows['refused'][number][] = [];
    const add = (sizes: LayoutSizes, kind: LayoutKind): void => {
      const name = planName(sizes, kind);
      const mesh = meshText(sizes, kind);
      const inner = [pp, dp, cp, tp].map((_, d, all) => all.slice(d).reduce((a, b) => a * b, 1));
      const bad = inner.slice(1).find((n) => devicesPerHost % n !== 0 && n % devicesPerHost !== 0);
      const findings = lint({
        devices: question.devices,
        sizes: {
          pp,
          dp_replicate: sizes.dp_replicate,
          dp_shard: sizes.dp_shard,
          cp: kind.context === 'ulysses' ? 1 : cp,
          tp,
        },
        ulysses: kind.context === 'ulysses' ? cp : 1,
        ep: sizes.ep,
        etp: sizes.etp ?? 1,
        sequenceParallel: kind.sequenceParallel,
        facts,
        devicesPerHost,
      }).filter((f) => f.code !== 'ZL13');
      if (bad !== undefined)
        findings.unshift({
          code: 'ZL01',
          severity: 'error',
          message: `${bad} inner devices neither divide a host of ${devicesPerHost} nor fill whole ones`,
          values: { inner: bad, devicesPerHost },
          nearest: [],
        });
      const error = findings.find((f) => f.severity === 'error');
      if (error !== undefined) refused.push({ name, mesh, finding: error });
      else rows.push({ name, mesh, sizes, kind, findings, meshIndex });
    };
    for (const [sizes, kind] of plansOn([pp, dp, cp, tp], isRouted, config.architecture.routed?.experts, expertTensor))
      add(sizes, kind);
    return { mesh: meshText({ pp, dp_replicate: 1, dp_shard: dp, cp, tp, ep: 1 }), sizes: [pp, dp, cp, tp], rows, refused }; // prettier-ignore
  });
}

function* plansOn(
  [pp, dp, cp, tp]: readonly number[],
  isRouted: boolean,
  experts = 1,
  expertTensor = false,
): Generator<readonly [LayoutSizes, LayoutKind]> {
  const replicas = divisors(dp);
  const contexts = cp > 1 ? (['cp', 'ring', 'ulysses'] as const) : (['cp'] as const);
  // Tokens are sent to experts from where they lie: with tensor parallelism the residual stream is cut between regions.
  const streams = tp > 1 && !isRouted ? [false, true] : [true];
  const groups = (n: number): number[] => divisors(n).filter((ep) => experts % ep === 0);
  const whole = isRouted ? groups(dp * cp * tp).map((ep) => ({ ep })) : [{ ep: 1 }];
  // As Megatron and torchtitan have it: the devices of a tensor group cut their experts as they cut the rest.
  const cut = isRouted && expertTensor && tp > 1 ? groups(dp * cp).map((ep) => ({ ep, etp: tp })) : [];
  const folds: readonly Pick<LayoutSizes, 'ep' | 'etp'>[] = [...whole, ...cut];
  const modes: readonly StateMode[] = dp * cp === 1 ? ['dp'] : ['dp', 'zero1', 'zero2', 'fsdp'];
  for (const fold of folds)
    for (const context of contexts)
      for (const sequenceParallel of streams) {
        const base = { pp, dp_replicate: 1, dp_shard: dp, cp, tp, ...fold };
        for (const mode of modes) yield [base, { mode, context, sequenceParallel }];
        for (const r of replicas) {
          // Expert groups stay inside a replica.
          if (r === 1 || r === dp || ((dp / r) * cp * tp) % (fold.ep * (fold.etp ?? 1)) !== 0) continue;
          yield [
            { ...base, dp_replicate: r, dp_shard: dp / r },
            { mode: 'hsdp', context, sequenceParallel },
          ];
        }
      }
}

export function divisors(n: number): number[] {
  return Array.from({ length: n }, (_, i) => i + 1).filter((d) => n % d === 0);
}
