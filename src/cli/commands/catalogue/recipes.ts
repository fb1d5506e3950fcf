/** `recipes list` and `recipes lint`: prints the recipes, and the faults of one on a mesh. */

import type { Cluster } from '../../../cost/hardware/cluster.ts';
import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import { clusterTopology } from '../../../cost/hardware/topology.ts';
import { defined } from '../../../defined.ts';
import { ShardwrightError, suggestion } from '../../../errors.ts';
import { itemAt } from '../../../item-at.ts';
import { type DeviceMesh, parseMesh } from '../../../mesh/devices/mesh.ts';
import { paddingText } from '../../../models/vocabulary.ts';
import { modelFacts } from '../../../recipes/inputs/model-facts.ts';
import { graphInputRoles } from '../../../recipes/inputs/roles.ts';
import { lintPlan } from '../../../recipes/lint.ts';
import { matchAxes } from '../../../recipes/mesh-axes.ts';
import { NAMED_RECIPES, type NamedRecipe, namedRecipe } from '../../../recipes/registry.ts';
import { tableText } from '../../../units.ts';
import { clusterText } from '../../input/cluster-file.ts';
import { loadModel } from '../../input/load.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import type { RecipeLintOptions, RecipeListOptions } from './flags.ts';

const AXES = [...new Set(NAMED_RECIPES.flatMap(({ axes }) => axes))].sort();

/**
 * `recipes list`: every plan; with a mesh, those whose axes its dims can be, with the groups and
 * hosts of each axis.
 */
export function listRecipes(options: RecipeListOptions, io: CliIo): number {
  const mesh = options.mesh === undefined ? undefined : parseMesh(options.mesh);
  const plans = NAMED_RECIPES.filter(
    (z) => mesh === undefined || 'dims' in matchAxes(z, mesh.names),
  );
  if (mesh !== undefined && plans.length === 0)
    throw new ShardwrightError('E_USAGE', `no recipe has the axes of the mesh ${mesh.text}`, {
      hint: suggestion(
        mesh.names.find((name) => !AXES.includes(name)) ?? itemAt(mesh.names, 0),
        AXES,
        'axes',
      ),
    });
  const cluster = loadCluster(clusterText(options.cluster));
  const groups = (z: NamedRecipe): AxisGroups[] =>
    mesh === undefined ? [] : axisGroups(z, mesh, cluster);
  if (options.json === true) {
    const rows = plans.map(({ name, axes, shards, forward, backward, step, reuses, outside }) => ({
      name,
      axes,
      shards,
      forward,
      backward,
      step,
      reuses,
      ...defined({ outside }),
      ...(mesh !== undefined ? { groups: groups(namedRecipe(name)) } : {}),
    }));
    io.stdout(`${JSON.stringify({ plans: rows })}\n`);
  } else for (const z of plans) io.stdout(recipeText(z, groups(z)));
  return EXIT.ok;
}

/** The groups of devices that an axis communicates in, and the hosts that one of them touches. */
interface AxisGroups {
  readonly axis: string;
  readonly hosts: number;
  readonly groups: number[][];
}

function axisGroups(recipe: NamedRecipe, mesh: DeviceMesh, cluster: Cluster): AxisGroups[] {
  const matched = matchAxes(recipe, mesh.names);
  if ('refused' in matched) return [];
  return recipe.axes.map((axis, a) => {
    const dims = [itemAt(matched.dims, a)];
    return { axis, hosts: clusterTopology(cluster, mesh, dims).hosts, groups: mesh.groups(dims) };
  });
}

function recipeText(recipe: NamedRecipe, axes: readonly AxisGroups[]): string {
  const rows = [
    ['  shards', recipe.shards],
    ['  forward', recipe.forward],
    ['  backward', recipe.backward],
    ['  step', recipe.step],
  ];
  if (recipe.outside !== undefined) rows.push(['  note', recipe.outside]);
  for (const { axis, hosts, groups } of axes) {
    const shown = groups
      .slice(0, 4)
      .map((ids) => `{${ids.slice(0, 16).join(' ')}${ids.length > 16 ? ' ...' : ''}}`);
    rows.push([
      `  ${axis}`,
      `${groups.length} groups on ${hosts} host${hosts === 1 ? '' : 's'} each: ` +
        `${shown.join(' ')}${groups.length > 4 ? ' ...' : ''}`,
    ]);
  }
  const head = `${recipe.name}  (${recipe.axes.join(', ')}; reuses ${recipe.reuses})`;
  return `${head}\n${tableText(rows)}\n\n`;
}

/**
 * `recipes lint`: the faults of a recipe on a mesh, before planning. Exit 5 where it has an error.
 */
export async function lintRecipe(
  model: string,
  options: RecipeLintOptions,
  io: CliIo,
): Promise<number> {
  const recipe = namedRecipe(options.plan);
  const { sizes, order } = meshSizes(options.mesh, recipe);
  const { batch, seq, padVocab, mesh: _, ...read } = options;
  const given = {
    ...defined({ batch, sequence: seq }),
  };
  const { graph, table, padding } = await loadModel(model, {
    ...read,
    ...(padVocab === undefined ? {} : { padVocab, tensor: tensorOf(recipe, sizes, options) }),
  });
  // A graph keeps its sizes: batch and sequence are what the linter asks about, and no sizes to
  // build with.
  const facts = { ...modelFacts(graph, graphInputRoles(graph, table)), ...given };
  const { devicesPerHost } = loadCluster(clusterText(options.cluster));
  const findings = lintPlan(recipe, sizes, facts, devicesPerHost, {
    order,
    ...defined({ devices: options.devices, microbatch: options.microbatch }),
  });
  if (options.json === true)
    // Without padding the key is left out: JSON has no undefined.
    io.stdout(`${JSON.stringify({ plan: recipe.name, facts, findings, padding })}\n`);
  else if (findings.length === 0) io.stdout(`${recipe.name} on ${options.mesh}: nothing to say\n`);
  else {
    const rows = findings.map(({ code, severity, message, nearest }) => {
      const near = nearest.length > 0 ? `nearest: ${nearest.join(', ')}` : '';
      return [code, severity, message, near];
    });
    io.stdout(`${tableText(rows)}\n`);
  }
  if (padding !== undefined && options.json !== true) io.stdout(`note  ${paddingText(padding)}\n`);
  return findings.some((f) => f.severity === 'error') ? EXIT.findings : EXIT.ok;
}

/** Size of the plan's tensor axis, 1 without one; the rest of the devices where it is left open. */
function tensorOf(
  { axes }: NamedRecipe,
  sizes: readonly number[],
  { devices = 1 }: RecipeLintOptions,
): number {
  const at = axes.indexOf('tp');
  const size = sizes[at];
  if (size === undefined) return 1;
  if (size > 0) return size;
  const others = sizes.reduce((n, size, d) => (d === at ? n : n * size), 1);
  // What does not divide is said by the linter.
  return Math.max(1, Math.floor(devices / others));
}

/**
 * Sizes of the plan's axes, by name or by position, and the axes in the order of the mesh. One size
 * may be -1.
 */
function meshSizes(
  text: string,
  recipe: NamedRecipe,
): { readonly sizes: number[]; readonly order: string[] } {
  const parts = text.split(',').map((part) => /^\s*([A-Za-z_]\w*)\s*=\s*(-1|\d+)\s*$/.exec(part));
  const dims = parts.map((match) => {
    const [, name, size] = match ?? [];
    if (name === undefined)
      throw new ShardwrightError('E_USAGE', `--mesh '${text}' is not a mesh such as dp=8,tp=8`);
    return { name, size: Number(size) };
  });
  const matched = matchAxes(
    recipe,
    dims.map((d) => d.name),
  );
  if ('refused' in matched)
    throw new ShardwrightError('E_USAGE', `--mesh ${text}: ${matched.refused}`);
  const axes = recipe.axes.map((axis, a) => ({ axis, d: itemAt(matched.dims, a) }));
  return {
    sizes: matched.dims.map((d) => itemAt(dims, d).size),
    order: axes.sort((a, b) => a.d - b.d).map(({ axis }) => axis),
  };
}
