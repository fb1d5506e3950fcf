/**
 * Plans of a captured model whose program of one device `bench/local-programs.py` times: the
 * optimum and the recipes that are named, each with the files of `export --target torch` and its
 * plan folder beside them, under `plan/`.
 *
 *   npx tsx bench/local-plans.ts MODEL.fx.txt MESH CLUSTER FOLDER [RECIPE ...]
 *
 * Without recipes it prints the names of those that the mesh has.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { exportSource } from '../src/backend/target.ts';
import { planFiles } from '../src/cli/input/plan-folder.ts';
import { builtinOperators } from '../src/entries/ops.ts';
import { DEFAULT_REQUEST } from '../src/entries/plan.ts';
import { exportFiles } from '../src/export/export.ts';
import { importGraph } from '../src/index.ts';
import { planOfChoice } from '../src/plan/choice/result.ts';
import { leastCostPlan } from '../src/plan/least-cost-plan.ts';
import { priceRestriction } from '../src/recipes/compare/price.ts';
import { applyRecipe, meshRecipes } from '../src/recipes/recipes.ts';

const [file, mesh, cluster, folder, ...names] = process.argv.slice(2);
const table = builtinOperators();
const graph = importGraph(readFileSync(file));
const best = await leastCostPlan(
  graph,
  { ...DEFAULT_REQUEST, mesh, cluster, cost: 'nccl' },
  { table },
);
if (best.status !== 'planned') throw new Error(`${file} on ${mesh} has no plan`);
const found = [{ label: 'optimum', result: best }];
for (const recipe of meshRecipes(best.prepared.model)) {
  if (names.length === 0) console.log(recipe.name);
  if (!names.includes(recipe.name)) continue;
  const applied = applyRecipe(best.prepared.model, recipe);
  if ('refused' in applied) throw new Error(`${recipe.name}: ${applied.refused}`);
  const priced = await priceRestriction(best.prepared, applied.restriction);
  if ('refused' in priced) throw new Error(`${recipe.name}: ${priced.refused}`);
  found.push({
    label: recipe.name,
    result: planOfChoice(best.prepared, priced.choice, best.plan, best.certificate, []),
  });
}
for (const { label, result } of found) {
  const at = join(
    folder,
    label
      .toLowerCase()
      .replaceAll(/[^a-z]+/g, '-')
      .replaceAll(/^-|-$/g, ''),
  );
  mkdirSync(join(at, 'plan'), { recursive: true });
  const source = exportSource({ plan: result.plan, program: result.graph }, table);
  for (const { name, text } of exportFiles(source, 'torch').files)
    writeFileSync(join(at, name), text);
  for (const [name, content] of planFiles(result.plan, result.graph, result.certificate, table))
    writeFileSync(join(at, 'plan', name), content);
  const { computeSeconds, communicationSeconds } = result.plan.objective;
  console.log(
    `${label}: compute ${(computeSeconds * 1e3).toFixed(2)} ms, communication ` +
      `${(communicationSeconds * 1e3).toFixed(2)} ms`,
  );
}
