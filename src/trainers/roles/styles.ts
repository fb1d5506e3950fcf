/**
 * Names the cut of each layer in the words of tensor-parallel recipes: a style for each module that
 * has one, with repeated layers folded with `*`, and a list of the cuts that no style describes.
 * Source: torch.distributed.tensor.parallel; transformers' tp_plan.
 */
import type { ExportLoss, ExportSource } from '../../backend/target.ts';
import type { ParameterUse, PlanRoles } from './roles.ts';
import { type ZeroStage, zeroStage } from './zero-stage.ts';

export type Style = 'colwise' | 'rowwise' | 'embedding_rowwise' | 'embedding_colwise';

export interface StyledModule {
  /** Path of the module, `model.layers.*.mlp.up_proj` where all layers agree. */
  readonly path: string;
  readonly style: Style;
}

interface Styles {
  readonly modules: readonly StyledModule[];
  /**
   * Paths of modules with a table or matrix that no tensor-parallel dim cuts, folded like those.
   */
  readonly whole: readonly string[];
  readonly losses: readonly ExportLoss[];
}

/** The module of a parameter, and what the parameter is to it. */
function moduleOf(name: string): { readonly module: string; readonly kind: string } {
  const at = name.lastIndexOf('.');
  return at < 0
    ? { module: name, kind: 'weight' }
    : { module: name.slice(0, at), kind: name.slice(at + 1) };
}

export function tensorStyles({ roles, parameters }: PlanRoles, { mesh }: ExportSource): Styles {
  const tensor = roles.flatMap((role, m) => (role === 'tensor' ? [m] : []));
  const byModule = new Map<string, Style | 'whole'>();
  const losses: ExportLoss[] = [];
  for (const parameter of parameters) {
    const { name, stored, used } = parameter;
    const cut = tensor.map((m) => used[m]);
    const inPieces = cut.filter((d) => d >= 0);
    const lost = (instead: string): void =>
      void losses.push({ item: name, planned: stored.text, instead });
    if (inPieces.length === 0) {
      const { module } = moduleOf(name);
      if (parameter.shape.length > 1 && !byModule.has(module)) byModule.set(module, 'whole');
      continue;
    }
    if (inPieces.length < cut.length || new Set(inPieces).size > 1) {
      lost(
        'it is cut by some of the tensor-parallel mesh dims ' +
          `(${tensor.map((m) => mesh.names[m]).join(', ')}) only; a style cuts by all of them`,
      );
      continue;
    }
    const { module, kind } = moduleOf(name);
    const style = styleOf(parameter, inPieces[0], kind);
    if (style === undefined) lost(`no style cuts dim ${inPieces[0]} of it`);
    else if (kind === 'weight' || parameter.shape.length > 1) byModule.set(module, style);
  }
  const all = folded(byModule, parameters);
  return {
    modules: all.flatMap(({ path, style }) => (style === 'whole' ? [] : [{ path, style }])),
    whole: all.flatMap(({ path, style }) => (style === 'whole' ? [path] : [])),
    losses,
  };
}

function styleOf(
  { shape, outFirst, isTable }: ParameterUse,
  dim: number,
  kind: string,
): Style | undefined {
  if (isTable) return dim === 0 ? 'embedding_rowwise' : 'embedding_colwise';
  if (shape.length === 1) return kind === 'bias' ? 'colwise' : undefined;
  if (shape.length !== 2) return undefined;
  // A weight that is read without a transposition has its inputs first.
  return (dim === 0) === outFirst ? 'colwise' : 'rowwise';
}

/** A number in a path becomes `*` where every number that occurs there has the same style. */
function folded<S>(
  styles: ReadonlyMap<string, S>,
  parameters: readonly ParameterUse[],
): { path: string; style: S }[] {
  const all = new Set(parameters.map(({ name }) => moduleOf(name).module));
  const star = (path: string): string => path.replace(/(^|\.)\d+(?=\.|$)/g, '$1*');
  const groups = new Map<string, string[]>();
  for (const path of all) groups.set(star(path), [...(groups.get(star(path)) ?? []), path]);
  const out: { path: string; style: S }[] = [];
  for (const [pattern, paths] of groups) {
    const found = paths.map((path) => styles.get(path));
    const [first] = found;
    if (found.every((style) => style === first)) {
      if (first !== undefined) out.push({ path: pattern, style: first });
      continue;
    }
    paths.forEach((path, i) => {
      const style = found[i];
      if (style !== undefined) out.push({ path, style });
    });
  }
  return out;
}

/**
 * The parts of a plan that a recipe of data, FSDP, tensor and context parallelism does not
 * describe.
 */
export function recipeLosses(
  roles: PlanRoles,
  source: ExportSource,
  zero: ZeroStage['stage'] = 0,
): ExportLoss[] {
  const { mesh, plan } = source;
  const losses: ExportLoss[] = [];
  roles.roles.forEach((role, m) => {
    if (role === 'none' && mesh.sizes[m] > 1)
      losses.push({
        item: `mesh dim ${mesh.names[m]}`,
        planned: `${mesh.sizes[m]} devices that cut neither inputs nor parameters`,
        instead: 'a recipe has no such dim; it would count as data parallel',
      });
    if (role === 'fsdp')
      for (const { name, stored, shape } of roles.parameters)
        if (stored.placements[m].dim === undefined && shape.length > 0)
          losses.push({
            item: name,
            planned: `${stored.text}, whole on ${mesh.names[m]}`,
            instead: 'FSDP cuts every parameter over its dim',
          });
        else if (stored.placements[m].dim !== undefined && stored.placements[m].dim !== 0)
          losses.push({ item: name, planned: stored.text, instead: 'FSDP cuts dim 0' });
  });
  const { stage, trained, cut } = zeroStage(roles, source);
  if (stage > zero)
    losses.push({
      item: 'optimizer states',
      planned:
        `ZeRO-${stage}: of ${cut} of ${trained} parameters cut over devices that have them ` +
        'whole',
      instead: zero === 0 ? 'states lie as their parameters' : `ZeRO-${zero}`,
    });
  else if (stage > 0 && cut < trained)
    losses.push({
      item: 'optimizer states',
      planned: `of ${trained - cut} of ${trained} parameters whole`,
      instead: 'all are cut',
    });
  const other = plan.request.checkpoint;
  if (other !== undefined && other !== 'none' && other !== 'full')
    losses.push({
      item: 'recomputation',
      planned: String(other),
      instead: 'the recipe recomputes whole layers or nothing',
    });
  return losses;
}
