/**
 * The architecture of Llama-like decoders from their configs, with the module names of Hugging
 * Face.
 */

import { defined } from '../../defined.ts';
import type { DType } from '../../graph/types.ts';
import { activate, type Activation } from '../../trace/nn/feed-forward.ts';
import { Embedding, Linear } from '../../trace/nn/linear.ts';
import { RMSNorm } from '../../trace/nn/norm.ts';
import { spec } from '../../trace/record/spec.ts';
import { arange, crossEntropy } from '../../trace/tensor/functional.ts';
import { scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
import type { Architecture, ModelProgram, ProgramOptions, RoutedExperts } from '../architecture.ts';
import { causalMask } from '../layers/attention-core.ts';
import { type Classes, classified, classifierInputs, LAST_TOKEN } from '../layers/classifier.ts';
import { decoderAttention, type Sight } from '../layers/decoder-attention.ts';
import type { DecoderConfig } from '../layers/decoder-config.ts';
import { RoutedLayer } from '../layers/experts.ts';
import { OffsetRMSNorm } from '../layers/norms.ts';
import { headRotation } from '../layers/rotary.ts';

/** The architecture of a decoder config, with the module names of the Hugging Face classes. */
export function decoderArchitecture(
  config: DecoderConfig,
  notes: readonly string[] = [],
  classes?: Classes,
): Architecture {
  const {
    layers,
    width,
    heads,
    keyHeads,
    headWidth,
    hidden,
    vocabulary,
    positions,
    experts,
    tied,
  } = config;
  return {
    shape: {
      layers,
      width,
      heads,
      keyHeads,
      headWidth,
      hidden,
      vocabulary,
      ...defined({ positions }),
      ...(config.latent === undefined ? {} : { latentCache: true as const }),
    },
    rowParameters: tied || classes !== undefined ? width : 2 * width,
    program: (options) => decoderProgram(config, options, classes),
    ...(classes === undefined ? { caches: true } : {}),
    notes: classes?.of === 'sequence' ? [...notes, LAST_TOKEN] : notes,
    ...(experts === undefined ? {} : { routed: routedExperts(experts) }),
  };
}

function routedExperts({
  experts,
  active,
  hidden,
  groups,
}: NonNullable<DecoderConfig['experts']>): RoutedExperts {
  return {
    experts,
    active,
    hidden,
    ...(groups === undefined ? {} : { groups: { count: groups.count, kept: groups.kept } }),
  };
}

/**
 * Ids and labels of a language model: [batch, length] each; labels are the next tokens, so nothing
 * is shifted here.
 */
export function languageInputs({ batch, seq, training }: ProgramOptions): ModelProgram['inputs'] {
  const ids = spec([batch, seq], 'i64');
  return training ? { input_ids: ids, labels: ids } : { input_ids: ids };
}

/** Mean cross entropy in float32, or the logits. */
export function lossOrLogits(
  logits: Tensor,
  labels: Tensor | undefined,
  vocabulary: number,
): Readonly<Record<string, Tensor>> {
  if (labels === undefined) return { logits };
  return { loss: crossEntropy(logits.to('f32').view(-1, vocabulary), labels.view(-1)) };
}

function decoderProgram(
  config: DecoderConfig,
  options: ProgramOptions,
  classes: Classes | undefined,
): ModelProgram {
  const own = options.attentionInOneCall === true ? withoutScores(config) : config;
  const { vocabulary = config.vocabulary } = options;
  if (classes === undefined && options.held !== undefined)
    return {
      inputs: languageInputs(options),
      run: ({ input_ids: ids }) => {
        const written: Record<string, Tensor> = {};
        const caches = cachesOf(config, options, (name, rows) => (written[name] = rows));
        const logits = decoderLogits(ids, own, options, caches);
        return { logits, ...written };
      },
    };
  if (classes === undefined)
    return {
      inputs: languageInputs(options),
      run: ({ input_ids: ids, labels }) =>
        lossOrLogits(decoderLogits(ids, own, options), labels, vocabulary),
    };
  return {
    inputs: classifierInputs(classes, options),
    run: ({ input_ids: ids, labels }) =>
      classified(decoderScores(ids, own, options, classes), labels, classes),
  };
}

/** A config whose attention changes no scores outside its kernel. */
function withoutScores({ window: _, attentionCap: __, ...config }: DecoderConfig): DecoderConfig {
  return config.sinks ? { ...config, sinksInKernel: true } : config;
}

/** The cache of each layer. */
type Caches = (layer: number) => Sight['cache'];

/**
 * Ids [batch, length] to logits [batch, length, vocabulary]; those of the last token alone where
 * there is a cache.
 */
function decoderLogits(
  ids: Tensor,
  config: DecoderConfig,
  options: ProgramOptions,
  caches?: Caches,
): Tensor {
  const { width, tied, finalCap } = config;
  const { dtype, seq, held, vocabulary = config.vocabulary } = options;
  const table = new Embedding('model.embed_tokens', vocabulary, width, { dtype });
  const states = decoderStates(ids, table, config, options, caches);
  const last = held === undefined || seq === 1 ? states : states.slice(1, seq - 1);
  const head = new Linear('lm_head', width, vocabulary, { bias: false, dtype });
  const logits = tied ? table.attend(last) : head.forward(last);
  return finalCap === undefined ? logits : logits.div(finalCap).tanh().mul(finalCap);
}

/** Ids [batch, length] to the scores of the classes, of each token or of the last one. */
function decoderScores(
  ids: Tensor,
  config: DecoderConfig,
  options: ProgramOptions,
  { of, labels }: Classes,
): Tensor {
  const { width } = config;
  const { dtype, seq, vocabulary = config.vocabulary } = options;
  const table = new Embedding('model.embed_tokens', vocabulary, width, { dtype });
  const last = decoderStates(ids, table, config, options);
  const scores = new Linear('score', width, labels, { bias: of === 'token', dtype }).forward(last);
  return of === 'token' ? scores : scores.select(1, seq - 1);
}

/** Ids [batch, length] to the last hidden state, behind its norm. */
function decoderStates(
  ids: Tensor,
  table: Embedding,
  config: DecoderConfig,
  options: ProgramOptions,
  caches?: Caches,
): Tensor {
  const { embeddingScale } = config;
  const { layers, dtype } = options;
  const embedded = table.forward(ids);
  let x = embeddingScale === undefined ? embedded : embedded.mul(embeddingScale);
  const sights = sightsOf(config, options);
  for (let layer = 0; layer < layers; layer++)
    x = scope(`model.layers.${layer}`, () => {
      const sight = { ...sights(layer), ...defined({ cache: caches?.(layer) }) };
      return decoderLayer(x, layer, config, sight, dtype);
    });
  return normOf(config, 'model.norm', dtype).forward(x);
}

/** The caches of layers: a window holds no earlier tokens than it sees. */
function cachesOf(
  { window = Infinity, windowed, chunked }: DecoderConfig,
  { held = 0 }: ProgramOptions,
  write: (name: string, rows: Tensor) => void,
): Caches {
  const seen = chunked === true ? (held % window) + 1 : Math.min(held + 1, window);
  return (layer) => ({
    rows: held === 0 ? 0 : windowed(layer) ? seen : held + 1,
    write: (name, rows) => {
      write(`${name}_${layer}`, rows);
    },
  });
}

/**
 * Rotations and masks, made once for the layers that share them, in the order in which layers first
 * need them.
 */
function sightsOf(
  config: DecoderConfig,
  { seq, layers, dtype, held = 0 }: ProgramOptions,
): (layer: number) => Sight {
  const { window, localRotation, latent } = config;
  const kinds = Array.from(
    { length: layers },
    (_, layer) => window !== undefined && config.windowed(layer),
  );
  const width = latent?.rotaryWidth ?? config.rotaryWidth;
  const written = config.attentionCap !== undefined || config.sinks;
  const turnOf = (name: string): Sight['turn'] =>
    scope('model', () => headRotation(name, seq, width, dtype, held));
  const make = (windowed: boolean, turn: Sight['turn']): Sight => {
    // A window that no sequence of this length leaves is the causal mask.
    const cut = windowed && window !== undefined && window < seq;
    if (!written && !cut) return { turn };
    const mask = causalMask(seq, cut ? window : undefined, config.chunked);
    return written ? { turn, written: mask } : { turn, mask };
  };
  const full = kinds.includes(false) || !localRotation ? turnOf('rotary_emb.inv_freq') : undefined;
  const local = localRotation && kinds.includes(true) ? turnOf('rotary_emb_local.inv_freq') : full;
  const wide = full !== undefined && kinds.includes(false) ? make(false, full) : undefined;
  const narrow = local !== undefined && kinds.includes(true) ? make(true, local) : undefined;
  const { rotates = () => true, temperature } = config;
  const isAnyStill = kinds.some((_, layer) => !rotates(layer));
  const temper =
    temperature === undefined || !isAnyStill
      ? undefined
      : temperOf(temperature, { seq, held, dtype });
  return (layer) => {
    const sight = kinds[layer] ? narrow : wide;
    if (sight === undefined)
      throw new RangeError(`layer ${layer} is beyond the ${layers} of the program`);
    return rotates(layer) ? sight : { ...sight, isStill: true, ...defined({ temper }) };
  };
}

/** Factors of queries by their position, [1, 1, length, 1]. */
function temperOf(
  { floor, scale }: NonNullable<DecoderConfig['temperature']>,
  { seq, held, dtype }: Required<Pick<ProgramOptions, 'seq' | 'held' | 'dtype'>>,
): Tensor {
  const passed = arange(seq)
    .add(held + 1)
    .floordiv(floor)
    .to('f32');
  return passed.add(1).log().mul(scale).add(1).to(dtype).view(1, 1, seq, 1);
}

function normOf(config: DecoderConfig, name: string, dtype: DType): RMSNorm | OffsetRMSNorm {
  const Norm = config.norm === 'offset' ? OffsetRMSNorm : RMSNorm;
  return new Norm(name, config.width, { eps: config.eps, dtype });
}

/**
 * One layer: attention and feed-forward, each behind a norm (and before one, in a sandwich) and
 * added to its input.
 */
function decoderLayer(
  x: Tensor,
  layer: number,
  config: DecoderConfig,
  sight: Sight,
  dtype: DType,
): Tensor {
  const { sandwich } = config;
  const norm = (name: string, y: Tensor): Tensor => normOf(config, name, dtype).forward(y);
  const attended = decoderAttention(norm('input_layernorm', x), config, sight, dtype);
  const seen = x.add(sandwich ? norm('post_attention_layernorm', attended) : attended);
  const before = norm(sandwich ? 'pre_feedforward_layernorm' : 'post_attention_layernorm', seen);
  const made = feedForward(before, layer, config, dtype);
  return seen.add(sandwich ? norm('post_feedforward_layernorm', made) : made);
}

function feedForward(x: Tensor, layer: number, config: DecoderConfig, dtype: DType): Tensor {
  const { experts, width, hidden, activation, fused, mlpBias, feedForward: name = 'mlp' } = config;
  if (experts !== undefined && config.routed(layer))
    return new RoutedLayer(name, width, experts, activation, dtype).forward(x);
  return scope(name, () =>
    gatedLayer(x, { width, hidden, activation, fused, bias: mlpBias }, dtype),
  );
}

interface GatedOptions {
  readonly width: number;
  readonly hidden: number;
  readonly activation: Activation;
  readonly fused: boolean;
  readonly bias: boolean;
}

/** `down(act(gate(x)) * up(x))`, gate and up from one weight where they are fused. */
function gatedLayer(
  x: Tensor,
  { width, hidden, activation, fused, bias }: GatedOptions,
  dtype: DType,
): Tensor {
  const one = (name: string, out: number): Tensor =>
    new Linear(name, width, out, { bias, dtype }).forward(x);
  const [gate, up] = fused
    ? one('gate_up_proj', 2 * hidden).chunk(2, -1)
    : [one('gate_proj', hidden), one('up_proj', hidden)];
  return new Linear('down_proj', hidden, width, { bias, dtype }).forward(
    activate(gate, activation).mul(up),
  );
}
