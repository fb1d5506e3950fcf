/**
 * Holds a layout as a trainer's configuration states it, before the number of devices and the model
 * are known, and makes of it the text that `--layout` takes, the sequence and the batch, and a list
 * of the settings without a price. The readers of the formats in this folder fill it.
 */

import type { Gradients, States } from '../../cost/memory/state-bytes.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import type { Architecture } from '../../models/architecture.ts';
import type { LayoutKey } from './layout-keys.ts';
import {
  cutsText,
  type MegatronCuts,
  megatronCuts,
  type StageLetters,
  torchtitanCuts,
} from './stage-cuts.ts';

/** A setting of a file that has no price, and why. */
export interface NotPriced {
  readonly key: string;
  readonly value: string;
  readonly why: string;
}

/** The settings that a file states; an absent field is not stated. */
export interface LayoutDraft {
  pp?: number;
  cp?: number;
  tp?: number;
  ep?: number;
  etp?: number;
  /** Data ranks with parameters of their own, and those that share them; -1: all that are left. */
  replicas?: number;
  shards?: number;
  /** Chunks of layers of a device, or the layers of a chunk. */
  chunks?: number;
  chunkLayers?: number;
  microbatch?: number;
  /** How the trainer lays layers on stages; absent: in equal parts. */
  cuts?: MegatronStages | TorchtitanStages;
  /** Microbatches of a step on one data rank. */
  accumulation?: number;
  zero?: number;
  sequenceParallel?: boolean;
  context?: string;
  recompute?: string;
  schedule?: string;
  /** True if parameters that were gathered are given back after each pass. */
  reshards?: boolean;
  /** True if exchanges with experts overlap with another microbatch. */
  pairs?: boolean;
  dtype?: string;
  /** The dtype that gradients are kept and summed in. */
  gradients?: Gradients;
  /** The dtypes that weights and moments are kept in. */
  states?: States;
  /** The recipe of products in fp8. */
  fp8Recipe?: string;
  devices?: number;
  sequence?: number;
  globalBatch?: number;
}

interface MegatronStages extends MegatronCuts {
  readonly trainer: 'megatron';
  readonly letters?: StageLetters;
}

interface TorchtitanStages {
  readonly trainer: 'torchtitan';
  /** Layers that the embedding counts as, and norm and head. */
  readonly inputWeight: number;
  readonly outputWeight: number;
  /** Layers of every part, where the file names them. */
  readonly parts?: readonly number[];
}

/** A size of the model that a file may state, too. */
export type ModelFact =
  | 'layers'
  | 'width'
  | 'hidden'
  | 'heads'
  | 'keyHeads'
  | 'headWidth'
  | 'vocabulary'
  | 'experts'
  | 'active'
  | 'expertHidden';

/** A size of the model; undefined where the model has none of the kind. */
export function modelFact({ shape, routed }: LayoutModel, fact: ModelFact): number | undefined {
  switch (fact) {
    case 'experts':
      return routed?.experts;
    case 'active':
      return routed?.active;
    case 'expertHidden':
      return routed?.hidden;
    default:
      return shape[fact];
  }
}

/** The model that a layout is for. */
export type LayoutModel = Pick<Architecture, 'shape' | 'routed'>;

/** The facts that a draft does not state. */
export interface LayoutSetting {
  readonly file: string;
  readonly devices: number;
  readonly model: LayoutModel;
  /** Function of a Python file that returns the configuration; absent: the only one. */
  readonly configuration?: string;
}

/** A layout of a file. */
export interface SettledLayout {
  /** The layout in the form of `--layout`. */
  readonly text: string;
  readonly sequence?: number;
  readonly globalBatch?: number;
}

/**
 * @throws E_INPUT where the sizes do not make up the devices, or the chunks not the layers
 */
export function settleLayout(draft: LayoutDraft, setting: LayoutSetting): SettledLayout {
  const { file, devices, model } = setting;
  const fail: Fail = (what, hint) => new ShardwrightError('E_INPUT', what, { file, hint });
  const data = dataRanks(draft, devices, fail);
  const stages = stagesOf(draft, draft.pp ?? 1, model.shape.layers, fail);
  const { microbatch, accumulation } = draft;
  const globalBatch =
    draft.globalBatch ??
    (microbatch === undefined || accumulation === undefined
      ? undefined
      : microbatch * accumulation * data.ranks);
  return {
    text: settingsOf(draft, data, stages, model.routed !== undefined)
      .flatMap(([key, value]) => (value === undefined ? [] : [`${key}=${value}`]))
      .join(','),
    ...defined({ sequence: draft.sequence, globalBatch }),
  };
}

type Fail = (what: string, hint: string) => ShardwrightError;

/** Ranks that hold other samples: replicas, each cut into shards. */
interface DataRanks {
  readonly ranks: number;
  readonly replicas: number;
  readonly shards: number;
}

/** The data ranks that the devices leave. @throws E_INPUT where the sizes do not make them up */
function dataRanks(draft: LayoutDraft, devices: number, fail: Fail): DataRanks {
  if (draft.devices !== undefined && draft.devices !== devices)
    throw fail(
      `the file is for ${draft.devices} devices, and --devices is ${devices}`,
      `write --devices ${draft.devices}.`,
    );
  const { pp = 1, cp = 1, tp = 1 } = draft;
  const inner = pp * cp * tp;
  if (devices % inner !== 0)
    throw fail(
      `pp x cp x tp = ${pp} x ${cp} x ${tp} = ${inner} does not divide --devices ${devices}`,
      `--devices ${inner * Math.max(1, Math.round(devices / inner))} would fit.`,
    );
  const ranks = devices / inner;
  const { replicas: givenReplicas = -1, shards: givenShards = -1 } = draft;
  const shards = givenShards > 0 ? givenShards : ranks / (givenReplicas > 0 ? givenReplicas : 1);
  const replicas = givenReplicas > 0 ? givenReplicas : ranks / shards;
  if (!Number.isInteger(shards) || !Number.isInteger(replicas) || replicas * shards !== ranks)
    throw fail(
      `data ranks of ${givenReplicas > 0 ? givenReplicas : 'any'} x ` +
        `${givenShards > 0 ? givenShards : 'any'}, and --devices ${devices} leaves ${ranks} ` +
        `next to pp x cp x tp = ${inner}`,
      'change --devices, or the sizes in the file.',
    );
  return { ranks, replicas, shards };
}

/** The settings of `--layout`; undefined for those that are as by default. */
function settingsOf(
  draft: LayoutDraft,
  { ranks, replicas, shards }: DataRanks,
  { chunks, cuts }: Stages,
  routed: boolean,
): readonly (readonly [LayoutKey, string | undefined])[] {
  const { pp = 1, cp = 1, tp = 1, ep = 1, zero = 0 } = draft;
  // Replicas of shards are HSDP; without cut parameters all data ranks are one kind.
  const hybrid = zero === 3 && replicas > 1;
  const flag = (value: boolean | undefined): string | undefined =>
    value === undefined ? undefined : value ? '1' : '0';
  const sized = (n: number | undefined, least = 1): string | undefined =>
    n === undefined || n <= least ? undefined : String(n);
  return [
    ['pp', sized(pp)],
    ['vp', sized(chunks)],
    ['stages', cuts === undefined || new Set(cuts).size === 1 ? undefined : cutsText(cuts)],
    ['dp_replicate', sized(hybrid ? replicas : 1)],
    ['dp', String(hybrid ? shards : ranks)],
    ['cp', sized(cp)],
    ['tp', sized(tp)],
    ['sp', tp > 1 ? flag(draft.sequenceParallel) : undefined],
    ['ep', sized(ep)],
    ['etp', routed ? sized(draft.etp) : undefined],
    ['mbs', String(draft.microbatch ?? 1)],
    ['zero', String(zero)],
    ['reshard', zero === 3 ? flag(draft.reshards) : undefined],
    ['recompute', draft.recompute],
    ['schedule', pp > 1 ? draft.schedule : undefined],
    ['context', cp > 1 ? draft.context : undefined],
    ['pair', draft.pairs === true && ep > 1 ? '1' : undefined],
    ['gradients', draft.gradients],
    ['states', draft.states],
    [
      'dtype',
      draft.dtype === 'fp8' && draft.fp8Recipe !== undefined
        ? `fp8:${draft.fp8Recipe}`
        : draft.dtype,
    ],
  ];
}

interface Stages {
  readonly chunks: number;
  /** Layers of each chunk; absent: in equal parts. */
  readonly cuts?: readonly number[];
}

function stagesOf(draft: LayoutDraft, pp: number, layers: number, fail: Fail): Stages {
  const { cuts } = draft;
  if (pp === 1) return { chunks: draft.chunks ?? 1 };
  if (cuts?.trainer === 'torchtitan') return titanStages(draft, cuts, { pp, layers, fail });
  if (cuts?.letters !== undefined) return letteredStages(cuts.letters, { pp, layers, fail });
  return countedStages(draft, cuts, { pp, layers, fail });
}

/** Layers that are cut into stages. */
interface Cutting {
  readonly pp: number;
  readonly layers: number;
  readonly fail: Fail;
}

/** Parts that the file names, or as many as torchtitan makes. */
function titanStages(
  { chunkLayers, chunks = 1 }: LayoutDraft,
  { inputWeight, outputWeight, parts }: TorchtitanStages,
  { pp, layers, fail }: Cutting,
): Stages {
  if (parts !== undefined) {
    const sum = parts.reduce((total, n) => total + n, 0);
    if (sum !== layers)
      throw fail(
        `module_fqns_per_model_part: found ${sum} layers, wanted ${layers}`,
        'name every layer of the model once.',
      );
    if (parts.length % pp !== 0)
      throw fail(
        `module_fqns_per_model_part: found ${parts.length} parts, wanted a multiple of ` +
          `pipeline_parallel_degree ${pp}`,
        'change one of the two.',
      );
    return { chunks: parts.length / pp, cuts: parts };
  }
  const counted = layers + inputWeight + outputWeight;
  const all = chunkLayers === undefined ? pp * chunks : Math.ceil(counted / chunkLayers);
  if (all % pp !== 0)
    throw fail(
      `pipeline_parallel_layers_per_stage: found ${chunkLayers}, which makes ${all} parts ` +
        `of ${layers} layers; wanted a multiple of pipeline_parallel_degree ${pp}`,
      'change one of the two.',
    );
  const found = torchtitanCuts(all, layers, inputWeight, outputWeight);
  if ('fault' in found) throw fail(found.fault, found.hint);
  return { chunks: all / pp, cuts: found };
}

/** The stages that Megatron-LM's layout writes in letters. */
function letteredStages(
  { layers: each, empty }: StageLetters,
  { pp, layers, fail }: Cutting,
): Stages {
  const sum = each.reduce((total, n) => total + n, 0);
  if (sum !== layers)
    throw fail(
      `pipeline_model_parallel_layout: found ${sum} layers (t), wanted ${layers}`,
      'a t is a layer of the model.',
    );
  if (each.length % pp !== 0)
    throw fail(
      `pipeline_model_parallel_layout: found ${each.length} stages, wanted a multiple of ` +
        `pipeline_model_parallel_size ${pp}`,
      'stages stand between |.',
    );
  // Without a price for the parts of a stage that are not layers, embedding or head, layers are
  // divided into equal parts.
  return { chunks: each.length / pp, ...(empty > 0 ? {} : { cuts: each }) };
}

/** Equal chunks, but for what Megatron-LM says of the first and the last stage. */
function countedStages(
  { chunkLayers, chunks = 1 }: LayoutDraft,
  cuts: MegatronStages | undefined,
  { pp, layers, fail }: Cutting,
): Stages {
  const each = chunkLayers === undefined ? chunks : layers / pp / chunkLayers;
  if (!Number.isInteger(each))
    throw fail(
      `chunks of ${chunkLayers} layers do not divide the ${layers / pp} layers of a stage`,
      `${layers} layers on pp=${pp}.`,
    );
  if (cuts === undefined) return { chunks: each };
  if (chunkLayers !== undefined && (cuts.first ?? cuts.last) !== undefined)
    throw fail(
      'num_layers_per_virtual_pipeline_stage: found with layers of the first or last stage',
      'Megatron-LM wants num_virtual_stages_per_pipeline_rank there.',
    );
  const found = megatronCuts(cuts, pp, each, layers);
  if ('fault' in found) throw fail(found.fault, found.hint);
  return { chunks: each, cuts: found };
}
