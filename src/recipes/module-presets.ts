/**
 * The module styles of DTensor's tensor parallelism as data: what a style on one mesh dim does to
 * the parameters, the input and the output of a module. `parallelizeModule` turns a table of styles
 * into pins of a plan; activations are then left to the planner, which finds the layouts that the
 * styles imply.
 */

import { checkKinds } from '../arguments.ts';
import { ShardwrightError, suggestion } from '../errors.ts';
import { roleName } from '../graph/nodes.ts';
import type { Arg, Graph, Node } from '../graph/types.ts';
import { exampleShape } from '../graph/value.ts';
import type { DeviceMesh } from '../mesh/devices/mesh.ts';
import { MaskPartial } from '../mesh/placements/partials/mask-partial.ts';
import { Partial } from '../mesh/placements/partials/partial.ts';
import type { Placement } from '../mesh/placements/placement.ts';
import { REPLICATE } from '../mesh/placements/replicate.ts';
import { Shard } from '../mesh/placements/shards/shard.ts';
import { cutFurther, type Sharding } from '../mesh/sharding/sharding.ts';
import type { Pin } from '../plan/request/request.ts';

/** How a module is cut, as `torch.distributed.tensor.parallel` names it. */
export type ModuleStyle = 'colwise' | 'rowwise' | 'sequence-parallel';
export type ModuleKind = 'linear' | 'embedding' | 'norm';

/** Placements of the parameters, inputs and outputs of a module. */
export interface ModulePreset {
  /** Placement of each parameter by its name in the module. */
  readonly parameters: Readonly<Record<'weight' | 'bias', Placement>>;
  /** Layout in which callers hand the input in. */
  readonly input: Placement;
  /** Layout in which the module takes it. */
  readonly desiredInput: Placement;
  /** Layout that the computation leaves. */
  readonly computedOutput: Placement;
  /** Layout in which the module hands the output out. */
  readonly output: Placement;
  /** True if callers get the local tensor and not a distributed one. */
  readonly useLocalOutput: boolean;
}

interface ModuleShape {
  readonly kind: ModuleKind;
  /** Rank of the module's input. */
  readonly inputRank: number;
  /**
   * How a linear weight is stored: [out, in] as PyTorch's Linear does (default), or [in, out] as in
   * a plain product.
   */
  readonly stored?: 'out-in' | 'in-out';
  /** Global shape of the weight. */
  readonly weight: readonly number[];
}

interface PresetOptions {
  /** Layout in which callers hand the input in; the default is the style's own. */
  readonly input?: Placement;
  /** Layout in which the output is wanted; the default is the style's own. */
  readonly output?: Placement;
}

/** Tensor dim of the sequence in (batch, sequence, hidden). */
const SEQUENCE_DIM = 1;

/**
 * The shardings that a style gives a module, on one mesh dim.
 *
 *  - `colwise`: input R, output cut on its last dim; linear weight S(0) and bias S(0), embedding
 *    weight S(1);
 *  - `rowwise`: linear input cut on its last dim, embedding input R, output R; linear weight S(1)
 *    and bias R, embedding weight S(0) (dims of linear weights are those of [out, in]);
 *  - `sequence-parallel`: input and output cut on dim 1, parameters R.
 *
 * @throws E_PLACEMENT for a style that the kind of module does not have, or an input that is too
 *   small for it
 */
export function modulePreset(
  style: ModuleStyle,
  module: ModuleShape,
  options: PresetOptions = {},
): ModulePreset {
  checkKinds('modulePreset', {
    style: [style, 'string'],
    module: [module, ['kind', 'inputRank', 'weight']],
    options: [options, 'record', 'undefined'],
  });
  const { kind, inputRank } = module;
  const lookup = kind === 'embedding';
  const [outDim, inDim] = module.stored === 'in-out' ? [1, 0] : [0, 1];
  const outputRank = lookup ? inputRank + 1 : inputRank;
  const named = (input: Placement): Pick<ModulePreset, 'input' | 'desiredInput'> => ({
    input: options.input ?? input,
    desiredInput: input,
  });
  if ((style === 'sequence-parallel') !== (kind === 'norm'))
    throw new ShardwrightError('E_PLACEMENT', `style '${style}' is not for a ${kind} module`, {
      hint: 'colwise and rowwise are for linear and embedding modules, sequence-parallel for norms',
    });
  switch (style) {
    case 'colwise': {
      const cut = Shard.of(-1, outputRank);
      return {
        parameters: { weight: Shard.of(lookup ? 1 : outDim), bias: Shard.of(0) },
        ...named(REPLICATE),
        computedOutput: cut,
        output: options.output ?? cut,
        useLocalOutput: true,
      };
    }
    case 'rowwise':
      return {
        parameters: { weight: Shard.of(lookup ? 0 : inDim), bias: REPLICATE },
        ...named(lookup ? REPLICATE : Shard.of(-1, inputRank)),
        computedOutput: lookup ? new MaskPartial(module.weight, 0) : Partial.of('sum'),
        output: options.output ?? REPLICATE,
        useLocalOutput: true,
      };
    case 'sequence-parallel': {
      const cut = Shard.of(SEQUENCE_DIM, inputRank);
      return {
        parameters: { weight: REPLICATE, bias: REPLICATE },
        ...named(cut),
        computedOutput: cut,
        output: options.output ?? cut,
        useLocalOutput: false,
      };
    }
  }
}

/**
 * The pins of a table of styles for the parameters of a graph: `parallelize_module(module, mesh,
 * {fqn: style})`. Names are module paths; `*` matches one part, as in `layers.*.attention.wq`. A
 * weight used by an embedding lookup belongs to an embedding, a weight of one dim to a norm, any
 * other to a linear module; one that is not transposed before its product is stored [in, out].
 *
 * @returns one pin for each parameter of a named module, in the order of the graph
 * @throws E_MESH unless the mesh has one dim, E_REF for a path that names no module with
 *   parameters, E_PLACEMENT when two paths give a module different styles, or a style does not fit
 *   the module
 */
export function parallelizeModule(
  graph: Graph,
  mesh: DeviceMesh,
  styles: Readonly<Record<string, ModuleStyle>>,
): Pin[] {
  checkKinds('parallelizeModule', {
    graph: [graph, 'graph'],
    mesh: [mesh, 'mesh'],
    styles: [styles, 'record'],
  });
  if (mesh.rank !== 1)
    throw new ShardwrightError(
      'E_MESH',
      `parallelize_module wants a mesh of one dim, got ${mesh.text}`,
      {
        hint:
          'take the tensor-parallel part of the mesh; ' +
          'pins of a larger mesh name every mesh dim',
      },
    );
  const modules = modulesOf(graph);
  const chosen = new Map<string, { readonly path: string; readonly style: ModuleStyle }>();
  for (const [path, style] of Object.entries(styles)) {
    const found = [...modules.keys()].filter((name) => matches(path, name));
    if (found.length === 0)
      throw new ShardwrightError('E_REF', `'${path}' names no module with parameters`, {
        hint: suggestion(path, [...modules.keys()], 'modules'),
      });
    for (const name of found) {
      const earlier = chosen.get(name);
      if (earlier !== undefined && earlier.style !== style)
        throw new ShardwrightError(
          'E_PLACEMENT',
          `module '${name}' is ${earlier.style} by '${earlier.path}' and ${style} by '${path}'`,
        );
      chosen.set(name, { path, style });
    }
  }
  const pins: Pin[] = [];
  for (const [name, { parameters, ...shape }] of modules) {
    const style = chosen.get(name)?.style;
    if (style === undefined) continue;
    // The placements of parameters do not depend on the input; 3-D is what every style takes.
    const preset = modulePreset(style, { ...shape, inputRank: 3 });
    for (const leaf of parameters)
      pins.push({ node: `${name}.${leaf}`, spec: preset.parameters[leaf].text });
  }
  return pins;
}

/**
 * `fully_shard`: the parameter cut on its first dim by one more mesh dim, after what tensor
 * parallelism cut. On (dp, tp) a weight `RS(0)` becomes `S(0)[1]S(0)[0]`, in DTensor's words `_S(0,
 * tp)S(0)`. With a replicate dim next to the shard dim (HSDP) the former stays R.
 *
 * @throws E_MESH for an unknown mesh dim, E_PLACEMENT when it cuts something already
 */
export function fullyShard(parameter: Sharding, mesh: DeviceMesh, shardDim: string): Sharding {
  checkKinds('fullyShard', {
    parameter: [parameter, 'sharding'],
    mesh: [mesh, 'mesh'],
    shardDim: [shardDim, 'string'],
  });
  return cutFurther(parameter, mesh.indexOf(shardDim), Shard.of(0));
}

interface Module extends Omit<ModuleShape, 'inputRank'> {
  readonly parameters: ('weight' | 'bias')[];
}

/** Modules that own a weight, by path. */
function modulesOf(graph: Graph): Map<string, Module> {
  // By first use: the backward pass transposes what the forward did not.
  const firstUse = new Map<string, string>();
  for (const node of graph.nodes) {
    if (node.kind !== 'call') continue;
    for (const arg of node.args)
      if (isValue(arg) && !firstUse.has(arg.name)) firstUse.set(arg.name, node.target);
  }
  const modules = new Map<string, Module>();
  const leaves = graph.nodes.filter((n) => n.kind === 'placeholder' && n.meta.role === 'parameter');
  for (const node of leaves) {
    const name = nameOf(node);
    if (!name.endsWith('.weight') || node.type.kind !== 'tensor') continue;
    const weight = exampleShape(node.type);
    const use = firstUse.get(node.name) ?? '';
    const kind = LOOKUPS.has(use) ? 'embedding' : weight.length === 1 ? 'norm' : 'linear';
    const stored = TRANSPOSES.has(use) ? 'out-in' : 'in-out';
    modules.set(name.slice(0, -'.weight'.length), { kind, weight, stored, parameters: ['weight'] });
  }
  for (const node of leaves) {
    const name = nameOf(node);
    if (name.endsWith('.bias'))
      modules.get(name.slice(0, -'.bias'.length))?.parameters.push('bias');
  }
  return modules;
}

const LOOKUPS = new Set(['aten.embedding.default']);
const TRANSPOSES = new Set([
  'aten.t.default',
  'aten.transpose.int',
  'aten.permute.default',
  'aten.linear.default',
]);

function nameOf(node: Node): string {
  return roleName(node);
}

function isValue(arg: Arg | undefined): arg is Extract<Arg, { kind: 'value' }> {
  return typeof arg === 'object' && arg !== null && 'kind' in arg && arg.kind === 'value';
}

/** Tells whether a path with `*` for single parts names the module. */
function matches(path: string, name: string): boolean {
  const wanted = path.split('.');
  const parts = name.split('.');
  return (
    wanted.length === parts.length && wanted.every((part, i) => part === '*' || part === parts[i])
  );
}
