/**
 * The mesh of `plan` where none is named: that of the program, whose types or regions may name its
 * axes; else the meshes of the devices are tried as `compare` tries them, and the one of the best
 * plan is taken.
 */

import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import { defined } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import { parseMesh } from '../../../mesh/devices/mesh.ts';
import type { Deadline } from '../../../plan/request/deadline.ts';
import { DEFAULT_RISK } from '../../../recipes/compare/best-plan.ts';
import type {
  ComparedLayout,
  ComparedPlan,
  Comparison,
} from '../../../recipes/compare/comparison.ts';
import { compare } from '../../../sweep/pipeline/compare.ts';
import { secondsText } from '../../../units.ts';
import { clusterText } from '../../input/cluster-file.ts';
import { loadModel } from '../../input/load.ts';
import type { CliIo } from '../../output/io.ts';
import { compareByConfig, configOf } from './compare-model.ts';
import type { PlanOptions } from './flags.ts';
import { requestOf } from './plan-request.ts';

/** A mesh that was tried, with its fastest plan. */
export interface TriedMesh {
  readonly mesh: string;
  readonly seconds: number;
  /** Passes of a step, one after another; absent: one. */
  readonly microbatches?: number;
}

/** The mesh to plan on, and those that were tried for it, the best first. */
interface ChosenMesh {
  readonly mesh: string;
  readonly tried?: readonly TriedMesh[];
  /** The step of the fastest plan, where it has several passes. */
  readonly passes?: Passes;
}

/** A step of several passes whose gradients are reduced once. */
interface Passes {
  readonly accumulate: number;
  /** Sequences of a pass, on all devices. */
  readonly batch: number;
}

/** Mesh dims of a graph that are tried: more of them take minutes. */
const MOST_DIMS = { graph: 2, model: 3 } as const;

/**
 * @param options `mesh` is taken as it is; without it the program decides where it names a mesh of
 *   as many devices, else the devices, by default those of a host
 * @throws E_USAGE where the mesh has another number of devices than is asked for, or is missing
 */
export async function chosenMesh(
  model: string,
  options: PlanOptions,
  deadline: Deadline,
  io: CliIo,
): Promise<ChosenMesh> {
  const { mesh, devices, pp } = options;
  if (mesh !== undefined) {
    const size = parseMesh(mesh).size * (pp ?? 1);
    if (devices === undefined || devices === size) return { mesh };
    throw new ShardwrightError(
      'E_USAGE',
      `--mesh ${mesh}${pp === undefined ? '' : ` --pp ${pp}`} has ${size} devices, and ` +
        `--devices is ${devices}`,
      { hint: 'leave one of them out.' },
    );
  }
  if (pp !== undefined)
    throw new ShardwrightError('E_USAGE', '--pp needs the mesh of a stage', {
      hint: 'give --mesh dp=4,tp=2, or ask compare, which tries stages and meshes.',
    });
  const cluster = clusterText(options.cluster, options);
  const count = devices ?? loadCluster(cluster).devicesPerHost;
  const found = await compared(model, count, { ...options, cluster }, deadline, io);
  if ('mesh' in found) return found;
  const tried = bestOfEachMesh(found);
  const [best] = tried;
  if (best !== undefined)
    return { mesh: best.mesh, tried, ...defined({ passes: passesOf(best, found, options) }) };
  throw new ShardwrightError('E_USAGE', `no mesh of ${count} devices could be tried`, {
    hint: 'name one: --mesh dp=8.',
  });
}

/** The passes of the fastest plan, unless the question states them or asks for several plans. */
function passesOf(
  { microbatches = 1 }: TriedMesh,
  { question }: Comparison,
  { accumulate, frontier }: PlanOptions,
): Passes | undefined {
  if (microbatches === 1 || question === undefined) return undefined;
  if (accumulate !== undefined || frontier !== undefined) return undefined;
  return { accumulate: microbatches, batch: question.globalBatch / microbatches };
}

/** The parts of a comparison that say which mesh is tried first. */
interface RankedMeshes extends Pick<Comparison, 'best'> {
  readonly plans: readonly (Pick<ComparedPlan, 'name' | 'mesh' | 'seconds' | 'fits'> & {
    readonly layout?: Pick<ComparedLayout, 'microbatches'>;
  })[];
}

/**
 * The meshes of a comparison without pipeline stages, each once, that of the best plan first. A
 * mesh of experts that no mesh dims of a plan express is left out.
 */
export function bestOfEachMesh({ plans, best }: RankedMeshes): TriedMesh[] {
  const first = plans.filter(({ name }) => name === best);
  const fitting = plans.filter(({ fits }) => fits).concat(plans);
  const found = new Map<string, TriedMesh>();
  for (const plan of [...first, ...fitting]) {
    const mesh = meshOfPlan(named(plan.mesh));
    if (mesh === undefined || found.has(mesh)) continue;
    const { names } = parseMesh(mesh);
    if (names.length > MOST_DIMS.model || names.includes('pp')) continue;
    const { microbatches = 1 } = plan.layout ?? {};
    found.set(mesh, {
      mesh,
      seconds: plan.seconds,
      ...(microbatches > 1 ? { microbatches } : {}),
    });
  }
  return [...found.values()];
}

/**
 * The dims of a plan for a mesh and the mesh of its experts, such as `dp=2,ep=8` for `dp=16 ep=8`:
 * the tokens are then cut over both dims, and the experts over the inner one. Undefined where
 * groups of experts take dims that cut something else for the rest of the model.
 */
export function meshOfPlan(text: string): string | undefined {
  const [dense = text, folded] = text.split(' ');
  if (folded === undefined) return dense;
  const [first, ...inside] = parseMesh(dense).dims;
  const sizes = new Map(parseMesh(folded).dims.map(({ name, size }) => [name, size]));
  const { ep, etp } = { ep: sizes.get('ep') ?? 1, etp: sizes.get('etp') ?? 1 };
  const tensor = inside.find(({ name }) => name === 'tp')?.size ?? 1;
  const isData = first?.name === 'dp' || first?.name === 'dp_shard';
  const isFolded = isData && inside.every(({ name }) => name === 'tp') && etp === tensor;
  if (!isFolded || first.size % ep !== 0) return undefined;
  const all = [
    { name: first.name, size: first.size / ep },
    { name: 'ep', size: ep },
    { name: 'tp', size: tensor },
  ];
  return all.flatMap(({ name, size }) => (size > 1 ? [`${name}=${size}`] : [])).join(',');
}

/** Dims of a graph's mesh have no names in a comparison: recipes know these. */
function named(mesh: string): string {
  return mesh.replace('d0=', 'dp=').replace('d1=', 'tp=');
}

/**
 * Prices the plans of all meshes: of a model by its layouts, of a graph by its optimum. A graph
 * that was written for a mesh has that one.
 */
async function compared(
  model: string,
  devices: number,
  options: PlanOptions,
  deadline: Deadline,
  io: CliIo,
): Promise<Comparison | Pick<ChosenMesh, 'mesh'>> {
  const control = {
    deadline: deadline.part(1 / 4),
    onPlan: (): void => undefined,
    ...(options.quiet === true ? {} : { onProgress: io.progress }),
  };
  const isStep = options.forward !== true && options.layers === undefined;
  const config = isStep ? configOf(model, options.lora) : undefined;
  if (config !== undefined) {
    const { cluster, seq, batch } = options;
    const asked = { ...options, risk: options.risk ?? DEFAULT_RISK };
    const point = { devices, cluster, sequence: seq, globalBatch: batch };
    const only = { whatIf: false, serialPasses: true } as const;
    return compareByConfig(config, point, asked, { ...control, ...only });
  }
  const { graph, table } = await loadModel(model, { ...options, devices });
  const { mesh: own } = graph;
  if (own !== undefined && parseMesh(own).size === (options.devices ?? parseMesh(own).size))
    return { mesh: own };
  const { mesh: _, ...request } = requestOf({ ...options, mesh: '' });
  return compare(
    graph,
    { ...request, shardings: 'ignore', devices },
    { table, ...control, plans: ['optimum'], maxDims: MOST_DIMS.graph },
  );
}

/** Meshes that are named in the text. */
const SHOWN = 3;

/** The meshes that were tried, as text. */
export function triedText(tried: readonly TriedMesh[]): string {
  const shown = tried
    .slice(0, SHOWN)
    .map(({ mesh, seconds }, i) => `${mesh} ${secondsText(seconds)}${i === 0 ? ' (taken)' : ''}`);
  const more = tried.length > SHOWN ? `, and ${tried.length - SHOWN} more` : '';
  return `${shown.join('; ')}${more} (--mesh names one)`;
}
