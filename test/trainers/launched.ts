/**
 * A layout in a record of a comparison, as `launchFiles` takes it; figures that it does not read
 * are 0.
 */

import type {
  ComparedLayout,
  ComparedMesh,
  ComparedPlan,
  Comparison,
} from '../../src/recipes/compare/comparison.ts';
import { type LayoutKind, meshText, planName } from '../../src/step/layout.ts';
import { launchFiles } from '../../src/trainers/launch-files.ts';
import type { LaunchFile } from '../../src/trainers/layout/launched-layout.ts';

export const LAYERS = 16;
export const BATCH = 512;
const question: NonNullable<Comparison['question']> = {
  model: 'a model',
  sequence: 8192,
  globalBatch: BATCH,
  cost: 'nccl',
  layers: LAYERS,
  pricedLayers: 3,
  layerKinds: 1,
  mfuConvention: '',
};

export interface Asked {
  readonly sizes?: Partial<ComparedLayout['sizes']>;
  readonly mode?: LayoutKind['mode'];
  readonly context?: LayoutKind['context'];
  readonly sequenceParallel?: boolean;
  readonly more?: Partial<ComparedLayout>;
  readonly stageLayers?: readonly number[];
  /** In place of the name of the layout. */
  readonly plan?: string;
  /** The trainer that the comparison is for. */
  readonly trainer?: string;
}

/** The files of a layout, as a comparison lists it. */
export function launched({
  sizes: some = {},
  mode = 'dp',
  context = 'ring',
  sequenceParallel = false,
  more = {},
  stageLayers,
  plan,
  trainer,
}: Asked): { readonly files: readonly LaunchFile[]; readonly devices: number } {
  const sizes = { pp: 1, dp_replicate: 1, dp_shard: 1, cp: 1, tp: 1, ep: 1, ...some };
  const kind: LayoutKind = { mode, context, sequenceParallel };
  const chunks = more.chunks ?? 1;
  const devices = sizes.pp * sizes.dp_replicate * sizes.dp_shard * sizes.cp * sizes.tp;
  const microbatch = more.microbatch ?? 2;
  const lengths = stageLayers ?? Array<number>(sizes.pp * chunks).fill(LAYERS / sizes.pp / chunks);
  const stages = lengths.map((n, i) => {
    const first = lengths.slice(0, i).reduce((a, b) => a + b, 0);
    return {
      first,
      end: first + n,
      embedding: i === 0,
      head: i === lengths.length - 1,
      seconds: 0,
      forwardSeconds: 0,
      backwardInputSeconds: 0,
      backwardWeightSeconds: 0,
      peakBytes: 0,
      inFlight: 1,
      idleShare: 0,
    };
  });
  const layout: ComparedLayout = {
    computeSeconds: 1,
    exposedCommunicationSeconds: 0,
    bubbleSeconds: 0,
    tokensPerSecond: 1,
    mfu: 0.5,
    memory: {
      parameterBytes: 0,
      gradientBytes: 0,
      optimizerBytes: 0,
      activationBytes: 0,
      temporaryBytes: 0,
    },
    sizes,
    microbatch,
    microbatches: BATCH / sizes.dp_replicate / sizes.dp_shard / microbatch,
    schedule: '1f1b',
    chunks,
    checkpoint: 'none',
    stages,
    boundaries: [],
    pointToPointBytes: 0,
    pricedLayers: 3,
    ...more,
  };
  const mesh = meshText(sizes, kind);
  const meshes: ComparedMesh[] = [
    {
      mesh,
      status: 'solved',
      hosts: mesh
        .split(' ')[0]
        .split(',')
        .map((dim) => Math.ceil(Number(dim.split('=')[1]) / 8)),
    },
  ];
  const compared: ComparedPlan = {
    name: 'x',
    plan: plan ?? planName(sizes, kind),
    origin: 'zoo',
    mesh,
    seconds: 1,
    communicationSeconds: 0,
    peakBytes: 1,
    fits: true,
    choice: true,
    layout,
  };
  const asked = trainer === undefined ? question : { ...question, trainer };
  return { files: launchFiles(compared, { question: asked, devices, meshes }), devices };
}
