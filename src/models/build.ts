/**
 * From a config to a graph: the forward program is traced; training adds the loss and the backward
 * pass.
 */

import { checkKinds } from '../arguments.ts';
import { ShardwrightError } from '../errors.ts';
import { roleName } from '../graph/nodes.ts';
import { type DType, DTYPE_BYTES, type Graph } from '../graph/types.ts';
import { exampleShape } from '../graph/value.ts';
import { builtinOperators } from '../ops/builtin.ts';
import { elements } from '../ops/record/record.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { jointGraph } from '../passes/autodiff/joint.ts';
import { trace } from '../trace/trace.ts';
import type { ModelConfig } from './families.ts';
import { isAdapter, loraText, trainedOf } from './low-rank.ts';
import { paddingText, type VocabularyPad, vocabularyPadding } from './vocabulary.ts';

/** Sizes and form of a model that is built from its config. */
export interface BuildOptions {
  /** Sequences at once, 8 by default. */
  readonly batch?: number;
  /** Tokens of a sequence, by default those of `defaultSequence`. */
  readonly seq?: number;
  /** Element type of parameters and activations; what the config states by default, else bf16. */
  readonly dtype?: DType;
  /** Loss and gradients of all parameters instead of the logits. Default false. */
  readonly training?: boolean;
  /** Fewer or more layers than the config has. */
  readonly layers?: number;
  /**
   * Rows of the vocabulary padded to a multiple, as `vocabularyPadding` has them; by default
   * exactly those of the config.
   */
  readonly padVocabulary?: VocabularyPad;
  /** Name of the graph; the family by default. */
  readonly name?: string;
  readonly table?: OperatorTable;
}

/** Sequences at once where neither they nor devices are stated. */
export const DEFAULT_BATCH = 8;
const DEFAULT_SEQUENCE = 4096;
/** Batch, length and layers beyond these are a slip of the keyboard. */
const LIMITS = { batch: 2 ** 20, seq: 2 ** 24, layers: 4096 } as const;

const DTYPES = new Map<string, DType>([
  ['float32', 'f32'],
  ['float', 'f32'],
  ['float16', 'f16'],
  ['half', 'f16'],
  ['bfloat16', 'bf16'],
  ['float64', 'f64'],
]);
const REAL_DTYPES: readonly DType[] = ['f64', 'f32', 'bf16', 'f16'];

/** Tokens of a sequence where none are stated: 4096, or as many as the positions allow. */
export function defaultSequence({ architecture }: ModelConfig): number {
  return Math.min(DEFAULT_SEQUENCE, architecture.shape.positions ?? DEFAULT_SEQUENCE);
}

/**
 * An element type as PyTorch or we write it. @throws E_UNSUPPORTED for one that weights cannot have
 */
export function dtypeNamed(text: string): DType {
  const plain = text.replace(/^torch\./, '');
  const found = DTYPES.get(plain) ?? REAL_DTYPES.find((dtype) => dtype === plain);
  if (found !== undefined) return found;
  throw new ShardwrightError('E_UNSUPPORTED', `'${text}' is not an element type of weights`, {
    hint: `known: ${[...DTYPES.keys(), ...REAL_DTYPES].join(', ')}`,
  });
}

/**
 * The graph of a model: logits (or the last hidden state), or loss and gradients. Parameters carry
 * the names of the checkpoint; the sizes that were chosen and the defaults that were taken are in
 * the notes of the graph.
 *
 * @throws E_LIMIT for sizes out of range, E_TYPE for a sequence that a table of positions does not
 *   hold, E_USAGE for a vocabulary that cannot be padded so
 */
export function buildModel(config: ModelConfig, options: BuildOptions = {}): Graph {
  checkKinds('buildModel', {
    config: [config, 'config'],
    options: [options, 'record', 'undefined'],
  });
  const { architecture } = config;
  const { shape } = architecture;
  const dtype =
    options.dtype ?? (config.statedDtype === undefined ? 'bf16' : dtypeNamed(config.statedDtype));
  const training = options.training ?? false;
  const layers = within('layers', options.layers ?? shape.layers);
  const batch = within('batch', options.batch ?? DEFAULT_BATCH);
  const seq = within('seq', options.seq ?? defaultSequence(config));
  const beyond = shape.positions !== undefined && seq > shape.positions;
  if (beyond && architecture.learnedPositions === true)
    throw new ShardwrightError(
      'E_TYPE',
      `a sequence of ${seq} tokens, but the model has a table of ${shape.positions} positions`,
      { hint: `--seq ${shape.positions} is the longest.` },
    );
  const padding =
    options.padVocabulary === undefined
      ? undefined
      : vocabularyPadding(config, options.padVocabulary);
  const rows = padding === undefined ? {} : { vocabulary: padding.rows };
  const { inputs, run } = architecture.program({ batch, seq, dtype, training, layers, ...rows });
  const table = options.table ?? builtinOperators();
  // The programs here are our own and pure. The second trace and the guards on property traffic
  // would find nothing, and no call comes from a line of the user's, for which the whole stack of
  // every call would be searched.
  const traced = trace((given) => run(given), inputs, {
    name: options.name ?? config.type,
    table,
    training,
    checkTwice: false,
    proxy: false,
    positions: false,
  });
  const forward = withoutSource(traced);
  const graph = training ? jointGraph(forward, { table, wrt: trainedOf(forward) }) : forward;
  const notes = [
    `built from a ${config.type} config: batch ${batch}, sequence ${seq}, ${dtype}, ` +
      `${layers} layers, ` +
      `${training ? 'training (forward and backward)' : 'inference (forward only)'}`,
    ...(layers === shape.layers ? [] : [`the config has ${shape.layers} layers`]),
    ...(beyond ? [`the config states at most ${shape.positions} positions`] : []),
    ...(padding === undefined ? [] : [paddingText(padding)]),
    ...(config.lora === undefined
      ? []
      : [`${loraText(config.lora)}: adapters are trained, all other weights stay as they are`]),
    ...config.notes,
    ...(config.defaults.length === 0 ? [] : [`defaults taken: ${config.defaults.join(', ')}`]),
    ...(config.ignored.length === 0 ? [] : [`keys without effect: ${config.ignored.join(', ')}`]),
  ];
  return { ...graph, notes: [...(graph.notes ?? []), ...notes] };
}

/**
 * The graph without places in programs. The program is the library's own, so the first frame
 * outside of it is whoever asked for the model: it says nothing of a node, and would make the text
 * of the graph depend on where the library lies.
 */
function withoutSource(graph: Graph): Graph {
  const nodes = graph.nodes.map((node) => {
    const { source: _, ...meta } = node.meta;
    return { ...node, meta };
  });
  const subgraphs = Object.entries(graph.subgraphs).map(
    ([name, body]) => [name, withoutSource(body)] as const,
  );
  return { ...graph, nodes, subgraphs: Object.fromEntries(subgraphs) };
}

function within(name: keyof typeof LIMITS, value: number): number {
  if (Number.isSafeInteger(value) && value >= 1 && value <= LIMITS[name]) return value;
  throw new ShardwrightError(
    'E_LIMIT',
    `${name} is ${value}, expected a whole number from 1 to ${LIMITS[name]}`,
    {
      hint: `--${name} N`,
    },
  );
}

/** Elements and bytes of the parameters of a model. */
export interface ParameterCounts {
  readonly total: number;
  /** Without the parameters that are stored and never trained. */
  readonly trainable: number;
  readonly bytes: number;
  /**
   * Parameters of routed experts, and all parameters that one token meets; only for models that
   * route.
   */
  readonly routed?: number;
  readonly active?: number;
}

/** Parameters of a graph of this config; tied ones are one parameter. */
export function countParameters(graph: Graph, config: ModelConfig): ParameterCounts {
  checkKinds('countParameters', { graph: [graph, 'graph'], config: [config, 'config'] });
  const { routed: routing, frozen = [] } = config.architecture;
  const still = new Set(frozen);
  let [total, fixed, routed, bytes] = [0, 0, 0, 0];
  for (const node of graph.nodes) {
    if (
      node.kind !== 'placeholder' ||
      node.meta.role !== 'parameter' ||
      node.type.kind !== 'tensor'
    )
      continue;
    const name = roleName(node);
    const size = elements(exampleShape(node.type));
    total += size;
    bytes += size * DTYPE_BYTES[node.type.dtype];
    if (config.lora === undefined ? still.has(name) : !isAdapter(name)) fixed += size;
    if (name.includes('.experts.')) routed += size;
  }
  if (routing === undefined) return { total, trainable: total - fixed, bytes };
  // Whole numbers: every expert has as many parameters as the others.
  const idle = (routed / routing.experts) * (routing.experts - routing.active);
  return { total, trainable: total - fixed, bytes, routed, active: total - idle };
}
