/**
 * Plans that are run on real PyTorch. In: a captured model of `test/fixtures/running`, a mesh,
 * recipes by name. Out: the optimum and those plans, each as what `export --target torch` writes.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import {
  type ExportFile,
  type ExportSource,
  exportSource,
  type OrderOptions,
} from '../../src/backend/target.ts';
import { builtinOperators } from '../../src/entries/ops.ts';
import { DEFAULT_REQUEST } from '../../src/entries/plan.ts';
import { exportFiles } from '../../src/export/export.ts';
import { applyRoles } from '../../src/import/complete/roles.ts';
import { type Graph, importGraph, type Plan, type PlanRequest } from '../../src/index.ts';
import { planOfChoice } from '../../src/plan/choice/result.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import type { Pin } from '../../src/plan/request/request.ts';
import { priceRestriction } from '../../src/recipes/compare/price.ts';
import { applyRecipe, meshRecipes, type Recipe } from '../../src/recipes/recipes.ts';
import { NAMED_RECIPES } from '../../src/recipes/registry.ts';
import { TRACED } from './traced-models.ts';

/** Slow devices beside fast links: tiny models get plans that cut. */
export const PAPER = JSON.stringify({
  id: 'paper',
  peakFlopsPerSecond: { fp64_tc: 1e9, fp64: 1e9, fp32: 1e9, bf16: 1e9 },
  matmulCap: 1,
  memoryBytes: 1e9,
  reservedBytes: 0,
  memoryBytesPerSecond: 1e8,
  memoryEfficiency: 1,
  devicesPerHost: 8,
  intra: { bytesPerSecond: 1e8, latencySeconds: 1e-7 },
  inter: { bytesPerSecond: 1e8, latencySeconds: 1e-7 },
  baseLatencySeconds: 1e-7,
  launchSeconds: 0,
  matmulLaunchSeconds: 0,
});

/**
 * Links on which a collective takes milliseconds before its first byte: sums and gathers travel in
 * buckets.
 */
export const LATE = JSON.stringify({
  ...(JSON.parse(PAPER) as object),
  id: 'late',
  baseLatencySeconds: 3e-3,
});

export interface RunningPlan {
  /** `mlp dp=2,tp=2 optimum`. */
  readonly name: string;
  readonly model: string;
  readonly plan: Plan;
  readonly source: ExportSource;
  readonly files: readonly ExportFile[];
  /** SHA-256 of what `program.py` does, see `programHash`. */
  readonly program: string;
  /**
   * Peak memory of the exported order, less the optimizer's state: what a forward and a backward
   * call hold.
   */
  readonly plannedBytes: number;
}

/**
 * Pins of the small MLP with which every device has a part of the batch, and gathers parameters
 * that are cut as said.
 */
export function gatheredWeights(parameters: string, batch: string): readonly Pin[] {
  const weights = ['fc1.weight', 'fc1.bias', 'fc2.weight', 'fc2.bias'].map((node) => ({
    node,
    spec: parameters,
  }));
  const rows = ['x', 'target_0', 'addmm', 'addmm_1', 'mse_loss_backward', 'threshold_backward'].map(
    (node) => ({ node, spec: batch }),
  );
  return [...weights, ...rows];
}

const fixture = (name: string): URL => new URL(`../fixtures/running/${name}`, import.meta.url);

/**
 * Record of a captured model, as `capture` of the Python package wrote it; undefined of one that is
 * traced here.
 */
export function captureRecord(model: string): string | undefined {
  return model in TRACED ? undefined : readFileSync(fixture(`${model}.fx.txt.json`), 'utf8');
}

function captured(model: string): Graph {
  const { ties } = JSON.parse(captureRecord(model) ?? '') as { ties: string[][] };
  const read = importGraph(gunzipSync(readFileSync(fixture(`${model}.fx.txt.gz`))));
  const pairs = ties.flatMap(([owner, ...others]) =>
    others.map((name): [string, string] => [owner, name]),
  );
  return pairs.length === 0 ? read : applyRoles(read, { ties: pairs });
}

/**
 * SHA-256 of a program without its comments, its values numbered in the order of their lines: names
 * may change, calls may not.
 */
export function programHash(text: string): string {
  const [, ...parts] = text.split('"""\n\n');
  const code = parts.join('').replace(/ *#.*$/gm, '');
  const bodies = code.split(/^(?=def (?:forward|backward)\()/m).map((body) => {
    if (!/^def (forward|backward)\(/.test(body)) return body;
    const names = new Map<string, string>();
    for (const [, unpacked, made] of body.matchAll(/^(?: {8}(\w+),| {4}(\w+) = )/gm)) {
      const name = unpacked ?? made;
      if (!names.has(name)) names.set(name, `v${names.size}`);
    }
    return body.replace(/(?<![\w."])[A-Za-z_]\w*(?![\w"=])/g, (word) => names.get(word) ?? word);
  });
  return createHash('sha256').update(bodies.join('')).digest('hex');
}

/** Plans of one question are made once: several tests read them. */
const made = new Map<string, Promise<RunningPlan[]>>();

/** The optimum of a model on a mesh, and the recipes that it admits among those that are named. */
export function runningPlans(
  model: string,
  mesh: string,
  known: readonly string[],
  request: Partial<PlanRequest> = {},
  order?: OrderOptions['order'],
): Promise<RunningPlan[]> {
  const key = JSON.stringify([model, mesh, known, request, order]);
  const plans = made.get(key) ?? newPlans(model, mesh, known, request, order);
  made.set(key, plans);
  return plans;
}

async function newPlans(
  model: string,
  mesh: string,
  known: readonly string[],
  request: Partial<PlanRequest>,
  order: OrderOptions['order'],
): Promise<RunningPlan[]> {
  const table = builtinOperators();
  const graph = TRACED[model]?.() ?? captured(model);
  const result = await leastCostPlan(
    graph,
    { ...DEFAULT_REQUEST, mesh, cluster: PAPER, ...request },
    { table },
  );
  if (result.status !== 'planned') throw new Error(`${model} on ${mesh} has no plan`);
  const found: { label: string; result: typeof result }[] = [{ label: 'optimum', result }];
  const axes = mesh.split(',').map((dim) => dim.split('=')[0]);
  const named = NAMED_RECIPES.flatMap((r): Recipe[] =>
    r.parts !== undefined && r.axes.join() === axes.join()
      ? [{ name: r.name, parts: r.parts }]
      : [],
  );
  for (const recipe of [...meshRecipes(result.prepared.model), ...named]) {
    if (!known.includes(recipe.name)) continue;
    const applied = applyRecipe(result.prepared.model, recipe);
    if ('refused' in applied) continue;
    const priced = await priceRestriction(result.prepared, applied.restriction);
    if ('refused' in priced) continue;
    found.push({
      label: recipe.name,
      result: planOfChoice(result.prepared, priced.choice, result.plan, result.certificate, []),
    });
  }
  return found.map(({ label, result: { plan, graph: program } }) => {
    // A graph with its bodies in line is what was placed, and no program.
    const source = exportSource(
      { plan, program: Object.keys(graph.subgraphs).length > 0 ? graph : program },
      table,
    );
    const { files } = exportFiles(source, 'torch', order === undefined ? {} : { order });
    const textOf = (file: string): string => files.find((one) => one.name === file)?.text ?? '';
    const text = textOf('program.py');
    const { peakBytes } = JSON.parse(textOf('collectives.json')) as { peakBytes: number };
    return {
      name: `${model} ${mesh} ${label}`,
      model,
      plan,
      source,
      files,
      program: programHash(text),
      plannedBytes: peakBytes - plan.memory.optimizerBytes,
    };
  });
}
