/**
 * Lists every layout of a sweep: ordered factorizations of the devices with the recipes that each
 * admits.
 */

import { type Hosts, tornText, usedPerHost } from '../../cost/hardware/topology.ts';
import { defined } from '../../defined.ts';
import { divisors } from '../../divisors.ts';
import type { ModelConfig } from '../../models/families.ts';
import { vocabularyPadding } from '../../models/vocabulary.ts';
import { factorizations } from '../../recipes/compare/meshes.ts';
import { type FoldedSizes, foldProblem } from '../../recipes/expert-mesh.ts';
import type { ModelFacts } from '../../recipes/inputs/model-facts.ts';
import { type Finding, lint } from '../../recipes/lint.ts';
import {
  layoutInners,
  type LayoutKind,
  type LayoutSizes,
  meshText,
  planName,
} from '../../step/layout.ts';
import type { Fold } from '../../step/read/moe.ts';
import type { StateMode } from '../../step/zero-mode.ts';
import { notRun } from '../../trainers/runs.ts';
import type { SweepQuestion } from '../model/question.ts';
import { trainerLimits } from '../model/trainer-limits.ts';

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
  readonly refused: readonly {
    readonly name: string;
    readonly mesh: string;
    readonly finding: Finding;
  }[];
}

/** Plans that are asked for. */
export interface AskedPlans {
  readonly row: (row: LayoutRow) => boolean;
  /** Sizes of expert meshes that are named. */
  readonly folds: readonly Partial<Fold>[];
}

/**
 * Sizes of a model as the linter asks for them; a padded vocabulary is that of so many tensor
 * ranks.
 */
function factsOf(config: ModelConfig, question: SweepQuestion, tensor = 1): ModelFacts {
  const { shape, routed } = config.architecture;
  return {
    batch: question.globalBatch,
    sequence: question.sequence,
    hidden: shape.width,
    heads: shape.heads,
    kvHeads: shape.keyHeads,
    mlpWidth: shape.hidden,
    vocabulary:
      vocabularyPadding(config, { multiple: question.padVocabulary ?? 1, tensor })?.rows ??
      shape.vocabulary,
    layers: shape.layers,
    ...defined({ decoderLayers: shape.decoderLayers }),
    ...(routed === undefined ? {} : { experts: routed.experts, expertWidth: routed.hidden }),
  };
}

/**
 * Every ordered factorization (pp, dp, cp, tp) of the devices with the plans on it: all state modes
 * of the data ranks, context parallelism (gathered or in a ring) or Ulysses where the sequence is
 * cut, tensor parallelism with and without a cut residual stream, experts folded over the data and
 * model dims, each whole or cut over as many devices as divide tp (`etp`). What the linter stops is
 * listed with its finding; experts that are cut, only where it is the cut that it stops: the rest
 * is said of whole ones. What the trainer of the question does not run is not a plan.
 *
 * @param tied whether the embedding is also the head
 * @param asked plans that are asked for with the sizes of their expert mesh: where it does not
 *   fold, they are listed with the finding too
 */
export function meshRows(
  config: ModelConfig,
  question: SweepQuestion,
  hosts: Hosts,
  tied = false,
  asked?: AskedPlans,
): MeshRows[] {
  const isRouted = config.architecture.routed !== undefined;
  const limits = trainerLimits(question);
  return factorizations(question.devices, 4).map(([pp, dp, cp, tp], meshIndex): MeshRows => {
    const rows: LayoutRow[] = [];
    const refused: MeshRows['refused'][number][] = [];
    const add = (sizes: LayoutSizes, kind: LayoutKind): void => {
      if (limits !== undefined && notRun(limits, { sizes, kind }) !== undefined) return;
      const name = planName(sizes, kind);
      const mesh = meshText(sizes, kind);
      const findings = layoutFindings(config, question, hosts, { sizes, kind }, tied);
      const error = findings.find((f) => f.severity === 'error');
      if (error !== undefined) {
        if ((sizes.etp ?? 1) === 1 || error.code === 'ZL08')
          refused.push({ name, mesh, finding: error });
      } else rows.push({ name, mesh, sizes, kind, findings, meshIndex });
    };
    const experts = config.architecture.routed?.experts;
    const list = experts === undefined ? [{ ep: 1 }] : foldsOn({ shard: dp, cp, tp }, experts);
    for (const [sizes, kind] of plansOn([pp, dp, cp, tp], isRouted, list)) add(sizes, kind);
    const others = (asked?.folds ?? []).flatMap(({ ep = 1, etp = 1 }) =>
      isRouted && tp % etp === 0 && !list.some((f) => f.ep === ep && (f.etp ?? 1) === etp)
        ? [{ ep, etp }]
        : [],
    );
    for (const [sizes, kind] of plansOn([pp, dp, cp, tp], isRouted, others)) {
      const row = {
        name: planName(sizes, kind),
        mesh: meshText(sizes, kind),
        sizes,
        kind,
        findings: [],
        meshIndex,
      };
      if (asked?.row(row) === true) add(sizes, kind);
    }
    return {
      mesh: meshText({ pp, dp_replicate: 1, dp_shard: dp, cp, tp, ep: 1 }),
      sizes: [pp, dp, cp, tp],
      rows,
      refused,
    };
  });
}

/** The sizes and the kind of a layout. */
interface SizedKind {
  readonly sizes: LayoutSizes;
  readonly kind: LayoutKind;
}

/**
 * The findings of the linter on a layout, and mesh dims that fit no host.
 *
 * @param tied whether the embedding is also the head
 */
export function layoutFindings(
  config: ModelConfig,
  question: SweepQuestion,
  hosts: Hosts,
  { sizes, kind: { context, sequenceParallel } }: SizedKind,
  tied = false,
): Finding[] {
  const { pp, dp_replicate, dp_shard, cp, tp, ep, etp = 1 } = sizes;
  const used = usedPerHost(hosts, layoutInners(sizes));
  const ulysses = context === 'ulysses' ? cp : 1;
  const findings = lint({
    devices: question.devices,
    sizes: { pp, dp_replicate, dp_shard, cp: cp / ulysses, tp },
    ulysses,
    ep,
    etp,
    sequenceParallel,
    facts: { ...factsOf(config, question, tp), tied },
    devicesPerHost: used ?? hosts.devicesPerHost,
  }).filter((f) => f.code !== 'ZL13');
  if (used !== undefined) return findings;
  const { devicesPerHost } = hosts;
  const values = { devices: question.devices, devicesPerHost };
  return [
    {
      code: 'ZL01',
      severity: 'error',
      message: tornText(hosts, layoutInners(sizes)),
      values,
      nearest: [],
    },
    ...findings,
  ];
}

function* plansOn(
  [pp, dp, cp, tp]: readonly number[],
  isRouted: boolean,
  folds: readonly Pick<LayoutSizes, 'ep' | 'etp'>[],
): Generator<readonly [LayoutSizes, LayoutKind]> {
  const replicas = divisors(dp);
  const contexts = cp > 1 ? (['cp', 'ring', 'ulysses'] as const) : (['cp'] as const);
  // Tokens are sent to experts from where they lie: with tensor parallelism the residual stream is
  // cut between regions.
  const streams = tp > 1 && !isRouted ? [false, true] : [true];
  const modes: readonly StateMode[] = dp * cp === 1 ? ['dp'] : ['dp', 'zero1', 'zero2', 'fsdp'];
  for (const fold of folds)
    for (const context of contexts)
      for (const sequenceParallel of streams) {
        const base = { pp, dp_replicate: 1, dp_shard: dp, cp, tp, ...fold };
        for (const mode of modes) yield [base, { mode, context, sequenceParallel }];
        for (const r of replicas) {
          // Expert groups stay inside a replica.
          if (
            r === 1 ||
            r === dp ||
            foldProblem({ shard: dp / r, cp, tp }, fold.ep, fold.etp ?? 1) !== undefined
          )
            continue;
          yield [
            { ...base, dp_replicate: r, dp_shard: dp / r },
            { mode: 'hsdp', context, sequenceParallel },
          ];
        }
      }
}

/**
 * Every fold of expert groups out of a mesh: experts whole (etp 1), cut over all devices of a
 * tensor group as Megatron and torchtitan cut them (etp = tp), and over any number between that
 * divides it.
 */
function foldsOn(sizes: FoldedSizes, experts: number): Pick<LayoutSizes, 'ep' | 'etp'>[] {
  const { shard, cp, tp } = sizes;
  return divisors(tp).flatMap((etp) =>
    divisors((shard * cp * tp) / etp).flatMap((ep) => {
      if (experts % ep !== 0 || foldProblem(sizes, ep, etp) !== undefined) return [];
      return [etp === 1 ? { ep } : { ep, etp }];
    }),
  );
}
