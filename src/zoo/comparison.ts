import { bytesText } from '../units.ts';
import { loadCluster, usableMemoryBytes } from '../cost/cluster.ts';
import { groupTopology } from '../cost/collectives.ts';
import { internalError, ShardwrightError } from '../errors.ts';
import type { Graph } from '../graph/types.ts';
import { DeviceMesh } from '../mesh/mesh.ts';
import type { OperatorTable } from '../ops/table.ts';
import { decode } from '../plan/decode.ts';
import { prepare, type Prepared } from '../plan/prepare.ts';
import { termBound } from '../plan/propagate.ts';
import type { PlanRequest } from '../plan/request.ts';
import { shardPrepared } from '../plan/shard.ts';
import { lintPlan, type Finding } from './lint.ts';
import { meshCandidates, type MeshCandidate } from './meshes.ts';
import { modelFacts } from './model-facts.ts';
import { dominator, paretoFront } from './pareto.ts';
import { priceRestriction, trafficOf, type Traffic } from './price.ts';
import { applyRecipe } from './recipes.ts';
import { recipeOf, ZOO, zooPlan, type ZooPlan } from './registry.ts';
import { zeroFromData } from './zero.ts';

/** Name of the free optimum among the plans. */
export const OPTIMUM = 'optimum';

/** One plan on one mesh. */
export interface ComparedPlan {
  /** The plan's name; with the sizes of the mesh behind it where a better mesh has the plain name. */
  readonly name: string;
  readonly plan: string;
  readonly origin: 'ilp' | 'zoo';
  readonly mesh: string;
  readonly seconds: number;
  readonly communicationSeconds: number;
  readonly peakBytes: number;
  readonly fits: boolean;
  /** Bytes above the budget. */
  readonly overBytes?: number;
  /** False for ZeRO-1 and ZeRO-2, which are priced beside the planning problem. */
  readonly choice: boolean;
  readonly proof?: { readonly status: string; readonly bound: number; readonly gap: number };
  readonly traffic?: readonly Traffic[];
  /** Why it is not the best. */
  readonly why?: string;
  /** Of a plan that was put together from priced layers; absent where the whole graph was priced. */
  readonly layout?: ComparedLayout;
}

/** What a comparison by model name says of a plan besides its figures. Seconds of the device that works longest. */
export interface ComparedLayout {
  readonly computeSeconds: number;
  readonly exposedCommunicationSeconds: number;
  readonly bubbleSeconds: number;
  /** Of all devices. */
  readonly tokensPerSecond: number;
  /** Model FLOPs utilisation; its convention is `question.mfuConvention`. */
  readonly mfu: number;
  /** Bytes of the fullest device by class. */
  readonly memory: {
    readonly parameterBytes: number;
    readonly gradientBytes: number;
    readonly optimizerBytes: number;
    readonly activationBytes: number;
    readonly temporaryBytes: number;
  };
  readonly sizes: Readonly<Record<'pp' | 'dp_replicate' | 'dp_shard' | 'cp' | 'tp' | 'ep', number>>;
  /** Sequences of a microbatch on a data rank, and microbatches of a step. */
  readonly microbatch: number;
  readonly microbatches: number;
  readonly schedule: string;
  readonly chunks: number;
  readonly checkpoint: 'none' | 'selective' | 'full';
  readonly stages: readonly {
    readonly first: number;
    readonly end: number;
    readonly embedding: boolean;
    readonly head: boolean;
    readonly seconds: number;
    readonly peakBytes: number;
    readonly inFlight: number;
    readonly idleShare: number;
  }[];
  /** Layers that were priced; the others are written alike. */
  readonly pricedLayers: number;
  /** Of a free plan: the plan of the zoo whose placements it has, because they are cheaper in all. */
  readonly placements?: string;
  /** Of a free plan: what was proven of the program of the priced layers, not of the whole model. */
  readonly shallowProof?: { readonly status: string; readonly bound: number; readonly gap: number; readonly objective: number }; // prettier-ignore
}

/** What would change the answer. */
export interface WhatIf {
  readonly change: string;
  readonly best: string | null;
  readonly mesh?: string;
  readonly seconds?: number;
  /** Whether plan and mesh are those of the answer. */
  readonly same: boolean;
  readonly next?: string;
}

/** A plan that a mesh, the model or the linter does not admit. */
export interface RefusedPlan {
  readonly plan: string;
  readonly mesh: string;
  readonly code?: string;
  readonly reason: string;
}

/** What became of a mesh. */
export interface ComparedMesh {
  readonly mesh: string;
  /** Hosts that one group of each dim touches. */
  readonly hosts: readonly number[];
  readonly status: 'solved' | 'beaten' | 'refused' | 'infeasible' | 'not asked';
  readonly boundSeconds?: number;
  readonly reason?: string;
  readonly smallestBudgetBytes?: number;
}

export interface Comparison {
  readonly devices: number;
  readonly cluster: string;
  readonly budgetBytes: number;
  readonly plans: readonly ComparedPlan[];
  readonly refused: readonly RefusedPlan[];
  readonly findings: readonly (Finding & { readonly plan: string; readonly mesh: string })[];
  readonly meshes: readonly ComparedMesh[];
  /** Name of the best plan that fits; null where none does. */
  readonly best: string | null;
  readonly pareto: readonly string[];
  /** What was asked, where a model was named. */
  readonly question?: {
    readonly model: string;
    readonly sequence: number;
    readonly globalBatch: number;
    readonly cost: string;
    readonly layers: number;
    readonly pricedLayers: number;
    readonly layerKinds: number;
    readonly mfuConvention: string;
  };
  /** How the figures were made, one sentence each. */
  readonly notes?: readonly string[];
  /** The Pareto front by memory. */
  readonly frontier?: readonly { readonly peakBytes: number; readonly seconds: number; readonly gap: number | null; readonly name: string }[]; // prettier-ignore
  readonly priceOfMemory?: readonly { readonly fromBytes: number; readonly toBytes: number; readonly deltaSeconds: number }[]; // prettier-ignore
  readonly nextBest?: readonly { readonly kind: string; readonly name: string; readonly mesh: string; readonly deltaSeconds: number }[]; // prettier-ignore
  readonly whatIf?: readonly WhatIf[];
  readonly smallestBudgetBytes?: number;
}

export interface CompareOptions {
  readonly table: OperatorTable;
  readonly devices: number;
  /** Everything of the request but its mesh. */
  readonly request: Omit<PlanRequest, 'mesh'>;
  /** Names of plans; absent: all of them. `optimum` is the free optimum. */
  readonly plans?: readonly string[];
  readonly maxDims?: number;
  /** Part of the meshes, for comparisons that are run in pieces: every n-th, from i on (0-based). */
  readonly slice?: { readonly index: number; readonly count: number };
  readonly signal?: AbortSignal;
  readonly onProgress?: (line: string) => void;
}

/**
 * The zoo on every mesh of some devices, beside the free optimum. Each zoo plan is solved as a restriction of the same problem, so
 * the optimum of its mesh can not be dearer; a mesh whose bound is above the best plan so far is not solved.
 *
 * @throws E_USAGE for an unknown plan, E_MESH, E_CLUSTER as `prepare`
 */
export async function compare(graph: Graph, options: CompareOptions): Promise<Comparison> {
  const wanted = options.plans?.map((name) => (name === OPTIMUM ? OPTIMUM : zooPlan(name).name));
  const cluster = loadCluster(options.request.cluster);
  const all = meshCandidates(options.devices, cluster.devicesPerHost, options.maxDims ?? 3);
  const { slice } = options;
  const candidates = slice === undefined ? all : all.filter((_, i) => i % slice.count === slice.index);
  const state: State = {
    raw: [],
    refused: [],
    findings: [],
    meshes: [],
    incumbent: Infinity,
    budgetBytes: options.request.memoryBytes ?? usableMemoryBytes(cluster),
    wanted,
  };
  if (wanted?.includes('pp') === true)
    state.refused.push({
      plan: 'pp',
      mesh: `pp=${options.devices}`,
      reason: zooPlan('pp').outside ?? 'it is not planned',
    });
  for (const candidate of candidates) await compareOn(graph, candidate, options, state);
  return conclude(options.devices, cluster.id, state);
}

type RawPlan = Omit<ComparedPlan, 'name' | 'why'>;

interface State {
  readonly raw: RawPlan[];
  readonly refused: RefusedPlan[];
  readonly findings: (Finding & { plan: string; mesh: string })[];
  readonly meshes: ComparedMesh[];
  readonly wanted: readonly string[] | undefined;
  /** Least seconds of a plan that fits. */
  incumbent: number;
  readonly budgetBytes: number;
}

async function compareOn(
  graph: Graph,
  { sizes, refused }: MeshCandidate,
  options: CompareOptions,
  state: State,
): Promise<void> {
  const { request, signal } = options;
  const mesh = new DeviceMesh(sizes.map((size, d) => ({ name: `d${d}`, size })));
  const { devicesPerHost } = loadCluster(request.cluster);
  const hosts = sizes.map((_, d) => groupTopology(mesh, devicesPerHost, [d]).hosts);
  if (refused !== undefined) {
    state.meshes.push({ mesh: mesh.text, hosts, status: 'refused', reason: refused });
    return;
  }
  const asked = (name: string): boolean => state.wanted?.includes(name) ?? true;
  const plans = ZOO.filter((zoo) => zoo.axes.length === sizes.length && zoo.name !== 'pp' && asked(zoo.name));
  if (plans.length === 0 && !asked(OPTIMUM)) {
    state.meshes.push({ mesh: mesh.text, hosts, status: 'not asked' });
    return;
  }
  options.onProgress?.(`mesh ${sizes.join(' x ')}: preparing`);
  const prepared = prepare(graph, { ...request, mesh: mesh.text }, options.table);
  const starts: Int32Array[] = [];
  let bestHere = Infinity;
  for (const zoo of plans) {
    const found = await priceZoo(prepared, zoo, state, signal);
    if (found === undefined) continue;
    if (found.choice !== undefined) {
      starts.push(found.choice);
      if (found.plan.fits) bestHere = Math.min(bestHere, found.plan.seconds);
    }
    if (found.plan.fits) state.incumbent = Math.min(state.incumbent, found.plan.seconds);
  }
  if (!asked(OPTIMUM)) {
    state.meshes.push({ mesh: mesh.text, hosts, status: 'not asked' });
    return;
  }
  const boundSeconds = termBound(prepared.problem) / prepared.model.unitsPerSecond;
  if (boundSeconds > state.incumbent) {
    state.meshes.push({ mesh: mesh.text, hosts, status: 'beaten', boundSeconds });
    return;
  }
  options.onProgress?.(`mesh ${sizes.join(' x ')}: solving`);
  const result = await shardPrepared(prepared, { starts, ...(signal !== undefined ? { signal } : {}) });
  if (result.status === 'infeasible') {
    const { smallestBudgetBytes } = result;
    state.meshes.push({
      mesh: mesh.text,
      hosts,
      status: 'infeasible',
      reason: result.conflict.join(', '),
      ...(smallestBudgetBytes !== undefined ? { smallestBudgetBytes } : {}),
    });
    return;
  }
  const { objective, proof, memory } = result.plan;
  if (proof.status === 'optimal' && objective.seconds > bestHere * (1 + 1e-9))
    throw internalError(`the optimum of ${mesh.text} costs ${objective.seconds} s, a plan of the zoo ${bestHere} s`);
  state.incumbent = Math.min(state.incumbent, objective.seconds);
  state.meshes.push({ mesh: mesh.text, hosts, status: 'solved', boundSeconds: proof.bound });
  state.raw.push({
    plan: OPTIMUM,
    origin: 'ilp',
    mesh: mesh.text,
    seconds: objective.seconds,
    communicationSeconds: objective.communicationSeconds,
    peakBytes: memory.peakBytes,
    fits: true,
    choice: true,
    proof: { status: proof.status, bound: proof.bound, gap: proof.gap },
    traffic: trafficOf(prepared, result.plan),
  });
}

async function priceZoo(
  prepared: Prepared,
  zoo: ZooPlan,
  state: State,
  signal: AbortSignal | undefined,
): Promise<{ readonly plan: RawPlan; readonly choice?: Int32Array } | undefined> {
  const { sizes } = prepared.model.space.mesh;
  const mesh = zoo.axes.map((axis, d) => `${axis}=${sizes[d]}`).join(',');
  const refuse = (reason: string, code?: string): void => {
    state.refused.push({ plan: zoo.name, mesh, ...(code !== undefined ? { code } : {}), reason });
  };
  const findings = lintPlan(zoo, sizes, modelFacts(prepared.model.graph), prepared.model.cluster.devicesPerHost);
  for (const finding of findings) state.findings.push({ plan: zoo.name, mesh, ...finding });
  const error = findings.find((f) => f.severity === 'error');
  if (error !== undefined) {
    refuse(error.message, error.code);
    return undefined;
  }
  const stage = zoo.name === 'zero1' ? 1 : zoo.name === 'zero2' ? 2 : undefined;
  const recipe = recipeOf(stage === undefined ? zoo : zooPlan('dp'));
  if (recipe === undefined) {
    refuse(zoo.outside ?? 'it is not planned');
    return undefined;
  }
  const applied = applyRecipe(prepared.model, recipe);
  const priced = 'refused' in applied ? applied : await priceRestriction(prepared, applied.restriction, signal);
  if ('refused' in priced) {
    refuse(priced.refused);
    return undefined;
  }
  const decoded = decode(prepared.model, priced.choice);
  const figures =
    stage === undefined
      ? { seconds: priced.seconds, communicationSeconds: decoded.communicationSeconds, peakBytes: priced.peakBytes }
      : zeroFromData(prepared, priced.choice, stage);
  const over = figures.peakBytes - prepared.budgetBytes;
  const plan: RawPlan = {
    plan: zoo.name,
    origin: 'zoo',
    mesh,
    ...figures,
    fits: over <= 0,
    ...(over > 0 ? { overBytes: over } : {}),
    choice: stage === undefined,
    ...(stage === undefined ? { traffic: trafficOf(prepared, decoded, zoo.axes) } : {}),
  };
  state.raw.push(plan);
  return stage === undefined ? { plan, choice: priced.choice } : { plan };
}

/** Names the plans, finds the best, and says why each other one is not. */
function conclude(devices: number, cluster: string, state: State): Comparison {
  const order = (a: RawPlan, b: RawPlan): number =>
    Number(b.fits) - Number(a.fits) ||
    (a.fits ? 0 : a.peakBytes - b.peakBytes) ||
    a.seconds - b.seconds ||
    a.peakBytes - b.peakBytes ||
    // Equal figures: our own plan first, then the simpler one.
    Number(a.origin === 'zoo') - Number(b.origin === 'zoo') ||
    a.mesh.length - b.mesh.length ||
    (a.mesh < b.mesh ? -1 : 1);
  const seen = new Set<string>();
  const named = [...state.raw].sort(order).map((p) => {
    const name = seen.has(p.plan) ? `${p.plan} [${p.mesh}]` : p.plan;
    seen.add(p.plan);
    return { name, ...p };
  });
  const best = named.find((p) => p.fits);
  const plans = named.map((p): ComparedPlan => {
    if (p === best) return p;
    if (p.overBytes !== undefined) return { ...p, why: `does not fit: ${bytesText(p.overBytes)} over the budget` };
    const dearer = best === undefined ? 0 : p.seconds / best.seconds - 1;
    const beater = dominator(named, p);
    const extra = best === undefined ? 0 : p.communicationSeconds - best.communicationSeconds;
    const cause = extra > (p.seconds - (best?.seconds ?? 0)) / 2 ? 'mostly communication' : 'mostly compute';
    const parts = [dearer === 0 ? 'equal seconds' : `${(dearer * 100).toPrecision(3)} % slower, ${cause}`];
    parts.push(beater === undefined ? 'no plan is better in both seconds and bytes' : `dominated by ${beater}`);
    return { ...p, why: parts.join('; ') };
  });
  return {
    devices,
    cluster,
    budgetBytes: state.budgetBytes,
    plans,
    refused: state.refused,
    findings: state.findings,
    meshes: state.meshes,
    best: best?.name ?? null,
    pareto: paretoFront(named),
  };
}

/**
 * One comparison of several that were run in pieces of the same question.
 *
 * @throws E_USAGE for pieces of different questions
 */
export function mergeComparisons(pieces: readonly Comparison[]): Comparison {
  const [first] = pieces;
  if (pieces.length === 0) throw new ShardwrightError('E_USAGE', 'there is nothing to merge');
  for (const piece of pieces)
    if (
      piece.devices !== first.devices ||
      piece.cluster !== first.cluster ||
      JSON.stringify(piece.question) !== JSON.stringify(first.question)
    )
      throw new ShardwrightError(
        'E_USAGE',
        `one comparison is of ${first.devices} devices of ${first.cluster}, another of ${piece.devices} of ${piece.cluster}`,
      );
  const whole = conclude(first.devices, first.cluster, {
    raw: pieces.flatMap((p) => p.plans.map(({ name: _, why: __, ...raw }) => raw)),
    refused: pieces.flatMap((p) => p.refused),
    findings: pieces.flatMap((p) => p.findings),
    meshes: pieces.flatMap((p) => p.meshes),
    wanted: undefined,
    incumbent: Infinity,
    budgetBytes: Math.max(...pieces.map((p) => p.budgetBytes)),
  });
  if (first.question === undefined) return whole;
  // What would change the answer was not asked of pieces; the rest is said of the whole again.
  const { question, notes = [] } = first;
  const frontier = whole.pareto.flatMap((name) => {
    const p = whole.plans.find((q) => q.name === name);
    return p === undefined ? [] : [{ name, peakBytes: p.peakBytes, seconds: p.seconds, gap: null }];
  });
  return { ...whole, question, notes, frontier };
}
