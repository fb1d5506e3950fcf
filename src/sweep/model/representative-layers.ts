/**
 * Builds a model with few layers that represents one of many, and gives the number of real layers
 * that each represents.
 */

import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { roleName } from '../../graph/nodes.ts';
import type { Arg, DType, Graph, Node } from '../../graph/types.ts';
import { eachOperand, mapOperands, typeText } from '../../graph/value.ts';
import { countParameters, dtypeNamed } from '../../models/build.ts';
import type { ModelConfig } from '../../models/families.ts';
import { loraText, trainedOf } from '../../models/low-rank.ts';
import { programFlops } from '../../ops/program-flops.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { jointGraph } from '../../passes/autodiff/joint.ts';
import type { ComparedAdapters } from '../../recipes/compare/comparison.ts';
import { LAYER, type LayerNumbers, layerNumbers, layerOf } from '../../step/layers.ts';
import { trace } from '../../trace/trace.ts';
import { withFusedAttention } from './fused-attention.ts';

/**
 * A model of few layers that represents one of many: equal layers cost the same, so one of each
 * kind is priced, and the first and the last as well.
 */
export interface LayerKinds {
  /** Layers of the model, those of an encoder and a decoder together. */
  readonly layers: number;
  /** Layers that are built. */
  readonly shallow: number;
  /** The most layers of one stack that are built: `layers` of `lossProgram`. */
  readonly depth: number;
  /** For every layer of the model, the built layer that represents it. */
  readonly standsFor: readonly number[];
  /** Kinds of layers. */
  readonly kinds: number;
  /** Matrix FLOPs of one sequence in the forward pass of all layers, attention with every score. */
  readonly sequenceFlops: number;
  /** True if a parameter is used before the layers and after them: a tied embedding. */
  readonly tied: boolean;
  /** Low-rank adapters, which are then all that is trained. */
  readonly adapters?: ComparedAdapters;
}

/**
 * Repeats the items of the built layers for the whole model, with those of the units around them.
 */
export function ofModel<T>(built: readonly T[], { standsFor }: Pick<LayerKinds, 'standsFor'>): T[] {
  return [built[0], ...standsFor.map((l) => built[l + 1]), built[built.length - 1]];
}

interface TokenSizes {
  readonly batch: number;
  readonly sequence: number;
  readonly dtype?: DType;
  /** Rows of a padded vocabulary. */
  readonly vocabulary?: number;
}

/**
 * The forward program with its loss, of so many layers of each stack, with attention as kernels
 * take it.
 */
export function lossProgram(
  config: ModelConfig,
  sizes: TokenSizes,
  layers: number,
  table: OperatorTable,
): Graph {
  const dtype =
    sizes.dtype ?? (config.statedDtype === undefined ? 'bf16' : dtypeNamed(config.statedDtype));
  const { batch, sequence: seq, vocabulary } = sizes;
  const rows = vocabulary === undefined ? {} : { vocabulary };
  const { inputs, run } = config.architecture.program({
    batch,
    seq,
    dtype,
    training: true,
    layers,
    ...rows,
    attentionInOneCall: true,
  });
  // The programs here are our own and pure, as in `buildModel`.
  const options = {
    name: config.type,
    table,
    training: true,
    checkTwice: false,
    proxy: false,
    positions: false,
  };
  return trace((given) => run(given), inputs, options);
}

/** Forward and backward pass of a program with a loss, attention fused (`withFusedAttention`). */
export function withBackward(forward: Graph, table: OperatorTable): Graph {
  return jointGraph(withFusedAttention(forward, table), { table, wrt: trainedOf(forward) });
}

/**
 * The kinds of the layers of a model, told by their calls: two layers are of one kind if they apply
 * the same operators to the same shapes and to the same values from outside (masks, rotations).
 *
 * @throws E_UNSUPPORTED for a model without layers
 */
export function layerKinds(
  config: ModelConfig,
  sizes: TokenSizes,
  table: OperatorTable,
): LayerKinds {
  const deepest = config.architecture.shape.layers;
  return kindsOfProgram(config, lossProgram(config, { ...sizes, batch: 1 }, deepest, table), table);
}

/** The kinds of the layers of a program with all layers of a model. */
export function kindsOfProgram(
  config: ModelConfig,
  graph: Graph,
  table: OperatorTable,
): LayerKinds {
  const deepest = config.architecture.shape.layers;
  const numbers = layerNumbers(graph);
  const { count: layers, stacks } = numbers;
  const signatures = layerSignatures(graph, numbers);
  const kindOf = signatures.map((text) => signatures.indexOf(text));
  const whole = {
    layers,
    kinds: new Set(kindOf).size,
    sequenceFlops: programFlops(graph, table).forward,
    tied: hasTies(graph),
    ...defined({ adapters: adaptersOf(config, graph) }),
  };
  for (let depth = Math.min(3, deepest); depth < deepest; depth++) {
    const standsFor = representatives(kindOf, stacks, depth);
    if (standsFor === undefined) continue;
    const shallow = stacks.reduce((sum, n) => sum + Math.min(n, depth), 0);
    return { ...whole, shallow, depth, standsFor };
  }
  return { ...whole, shallow: layers, depth: deepest, standsFor: kindOf.map((_, l) => l) };
}

/**
 * For every layer, the built layer that represents it where at most `depth` layers of each stack
 * are built; undefined where some kind would have none.
 */
function representatives(
  kindOf: readonly number[],
  stacks: readonly number[],
  depth: number,
): number[] | undefined {
  const found: number[] = [];
  let built = 0;
  for (const layers of stacks) {
    const kinds = kindOf.slice(found.length, found.length + layers);
    const own = representativesOf(kinds, Math.min(layers, depth));
    if (own.includes(-1)) return undefined;
    found.push(...own.map((l) => built + l));
    built += Math.min(layers, depth);
  }
  return found;
}

/** The same for one stack of which `n` layers are built; -1 for a layer whose kind has none. */
function representativesOf(kindOf: readonly number[], n: number): number[] {
  const last = kindOf.length - 1;
  if (n > last) return kindOf.map((_, l) => l);
  return kindOf.map((kind, l) => {
    if (l === 0) return 0;
    if (l === last) return kindOf[n - 1] === kind ? n - 1 : -1;
    // A neighbour of the same kinds is preferred: what it hands over is cut the same way.
    const inside = Array.from({ length: n - 2 }, (_, i) => i + 1).filter((i) => kindOf[i] === kind);
    return (
      inside.find((i) => kindOf[i - 1] === kindOf[l - 1] && kindOf[i + 1] === kindOf[l + 1]) ??
      inside[0] ??
      -1
    );
  });
}

/**
 * Tells whether a parameter is used both before the first call of the layers and after the last.
 */
function hasTies(graph: Graph): boolean {
  const inLayers = graph.nodes.flatMap((n, i) =>
    n.kind === 'call' && layerOf(n.meta.path) !== undefined ? [i] : [],
  );
  const [first = 0, last = 0] = [inLayers[0], inLayers.at(-1)];
  const parameters = new Set(
    graph.nodes.flatMap((n) =>
      n.kind === 'placeholder' && n.meta.role === 'parameter' ? [n.name] : [],
    ),
  );
  const early = new Set<string>();
  const late = new Set<string>();
  graph.nodes.forEach((node, i) => {
    if (node.kind !== 'call' || (i >= first && i <= last)) return;
    eachOperand(node, (name) => {
      if (parameters.has(name)) (i < first ? early : late).add(name);
    });
  });
  return [...early].some((name) => late.has(name));
}

/** The adapters of a model, with the parameters that are trained. */
function adaptersOf(config: ModelConfig, graph: Graph): ComparedAdapters | undefined {
  if (config.lora === undefined) return undefined;
  const { total, trainable } = countParameters(graph, config);
  return { text: loraText(config.lora), trained: trainable, parameters: total };
}

/** A text for every layer that is equal for equal layers. */
function layerSignatures(graph: Graph, numbers: LayerNumbers): string[] {
  const texts = Array.from({ length: numbers.count }, (): string[] => []);
  /** The name of a value in the text of its own layer, and that layer. */
  const inside = new Map<string, { readonly layer: number; readonly name: string }>();
  for (const node of graph.nodes) {
    const where = node.kind === 'placeholder' ? roleName(node) : node.meta.path;
    const layer = numbers.of(where);
    if (layer === undefined || where === undefined) continue;
    const own = node.kind === 'placeholder' ? where.replace(LAYER, '') : `${texts[layer].length}`;
    inside.set(node.name, { layer, name: own });
    if (node.kind !== 'call') continue;
    const named = mapOperands(node, (name) => {
      const known = inside.get(name);
      return known === undefined
        ? `outside ${name}`
        : known.layer === layer
          ? known.name
          : 'stream';
    });
    texts[layer].push(`${node.target}(${argsText(named)}): ${typeText(node.type)}`);
  }
  if (texts.length === 0 || texts.some((t) => t.length === 0))
    throw new ShardwrightError(
      'E_UNSUPPORTED',
      `the layers of '${graph.name}' are not numbered from 0`,
      { hint: 'compare its graph instead: trace or export it to a file.' },
    );
  return texts.map((t) => t.join('\n'));
}

function argsText({ args, kwargs }: Node): string {
  const text = (arg: Arg | Readonly<Record<string, Arg>>): string =>
    JSON.stringify(arg, (_, value: unknown) => (typeof value === 'bigint' ? String(value) : value));
  return `${text([...args])}${text(kwargs)}`;
}
