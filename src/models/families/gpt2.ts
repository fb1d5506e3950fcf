/** GPT-2's architecture from its config, with the module names of Hugging Face. */

import type { DType } from '../../graph/types.ts';
import { activate, type Activation } from '../../trace/nn/feed-forward.ts';
import { Embedding, Linear } from '../../trace/nn/linear.ts';
import { arange } from '../../trace/tensor/functional.ts';
import { param, scope } from '../../trace/tensor/state.ts';
import { apply, type Tensor } from '../../trace/tensor/tensor.ts';
import type { Architecture, Family, ProgramOptions } from '../architecture.ts';
import { activationOf } from '../layers/activation.ts';
import { fusedAttention, joinHeads, splitHeads } from '../layers/attention-core.ts';
import {
  type Classes,
  classesOf,
  classified,
  classifierInputs,
  CLASSIFYING,
  LAST_TOKEN,
} from '../layers/classifier.ts';
import { layerNorm, layersBelow } from '../layers/encoder-layer.ts';
import { headsFit } from '../layers/heads.ts';
import type { ConfigReader } from '../read-config.ts';
import { languageInputs, lossOrLogits } from './decoder.ts';

/**
 * GPT-2: learned positions, LayerNorm before each part, fused q, k, v, weights stored as [in, out].
 */
export const GPT2: Family = {
  types: ['gpt2'],
  classes: ['GPT2'],
  read: (config, _type, className) => {
    config.checkHead(className, ['LMHeadModel', ...CLASSIFYING]);
    return architecture(readConfig(config), classesOf(config, className));
  },
};

interface Gpt2Config {
  readonly width: number;
  readonly heads: number;
  readonly headWidth: number;
  readonly positions: number;
  readonly vocabulary: number;
  readonly hidden: number;
  readonly eps: number;
  readonly activation: Activation;
  readonly tied: boolean;
  readonly layers: number;
}

function readConfig(config: ConfigReader): Gpt2Config {
  const width = config.size(['n_embd', 'hidden_size']);
  const heads = config.size(['n_head', 'num_attention_heads']);
  const headWidth = headsFit(config, 'n_embd', width, 'n_head', heads);
  const positions = config.size(['n_positions', 'max_position_embeddings'], 1024);
  config.known('n_ctx');
  return {
    width,
    heads,
    headWidth,
    positions,
    vocabulary: config.size('vocab_size'),
    hidden: config.optionalSize('n_inner') ?? 4 * width,
    eps: config.positive('layer_norm_epsilon') ?? 1e-5,
    activation: activationOf(config, ['activation_function'], 'gelu_new'),
    tied: config.flag('tie_word_embeddings', true),
    layers: config.count(['n_layer', 'num_hidden_layers']),
  };
}

function architecture(config: Gpt2Config, classes: Classes | undefined): Architecture {
  const { layers, width, heads, headWidth, hidden, vocabulary, positions, tied } = config;
  return {
    shape: { layers, width, heads, keyHeads: heads, headWidth, hidden, vocabulary, positions },
    rowParameters: tied || classes !== undefined ? width : 2 * width,
    learnedPositions: true,
    ...(classes?.of === 'sequence' && { notes: [LAST_TOKEN] }),
    program: (options) => {
      const network = new Network(config, options);
      if (classes !== undefined)
        return {
          inputs: classifierInputs(classes, options),
          run: ({ input_ids: ids, labels }) =>
            classified(network.scores(ids, classes), labels, classes),
        };
      return {
        inputs: languageInputs(options),
        run: ({ input_ids: ids, labels }) =>
          lossOrLogits(network.logits(ids), labels, options.vocabulary ?? vocabulary),
      };
    },
  };
}

/** The tensors of a program, part by part. */
class Network {
  constructor(
    private readonly config: Gpt2Config,
    private readonly options: ProgramOptions,
  ) {}

  logits(ids: Tensor): Tensor {
    const { width, tied } = this.config;
    const { dtype } = this.options;
    const table = this.table();
    const out = this.states(ids, table);
    return tied
      ? table.attend(out)
      : new Linear('lm_head', width, this.rows, { bias: false, dtype }).forward(out);
  }

  /** The scores of the classes, of each token or of the last one. */
  scores(ids: Tensor, { of, labels }: Classes): Tensor {
    const { width } = this.config;
    const { seq, dtype } = this.options;
    const out = this.states(ids, this.table());
    return of === 'token'
      ? new Linear('classifier', width, labels, { dtype }).forward(out)
      : new Linear('score', width, labels, { bias: false, dtype }).forward(out).select(1, seq - 1);
  }

  private get rows(): number {
    return this.options.vocabulary ?? this.config.vocabulary;
  }

  private table(): Embedding {
    const { dtype } = this.options;
    return new Embedding('transformer.wte', this.rows, this.config.width, { dtype });
  }

  /** The last hidden state, behind its norm. */
  private states(ids: Tensor, table: Embedding): Tensor {
    const { width, positions } = this.config;
    const { seq, layers, dtype } = this.options;
    const places = new Embedding('transformer.wpe', positions, width, { dtype });
    const x = table.forward(ids).add(places.forward(arange(seq).unsqueeze(0)));
    const last = layersBelow('transformer.h', layers, x, (y) => this.block(y));
    return this.norm('transformer.ln_f', last);
  }

  private block(x: Tensor): Tensor {
    const before = this.norm('ln_1', x);
    const seen = x.add(scope('attn', () => this.attention(before)));
    const between = this.norm('ln_2', seen);
    return seen.add(scope('mlp', () => this.feedForward(between)));
  }

  private attention(x: Tensor): Tensor {
    const { width, headWidth } = this.config;
    const { dtype } = this.options;
    const parts = columns('c_attn', x, width, 3 * width, dtype).split([width, width, width], -1);
    const [q, k, v] = parts.map((part) => splitHeads(part, headWidth));
    const out = joinHeads(fusedAttention(q, k, v, { causal: true }));
    return columns('c_proj', out, width, width, dtype);
  }

  private feedForward(x: Tensor): Tensor {
    const { width, hidden, activation } = this.config;
    const { dtype } = this.options;
    const inner = activate(columns('c_fc', x, width, hidden, dtype), activation);
    return columns('c_proj', inner, hidden, width, dtype);
  }

  private norm(name: string, x: Tensor): Tensor {
    const { width, eps } = this.config;
    return layerNorm(name, x, width, eps, this.options.dtype);
  }
}

/**
 * `x @ weight + bias` with the weight as [in, out]; [batch, length, in] to [batch, length, out].
 */
function columns(name: string, x: Tensor, inner: number, outer: number, dtype: DType): Tensor {
  return scope(name, () => {
    const weight = param('weight', { shape: [inner, outer], dtype });
    const bias = param('bias', { shape: [outer], dtype });
    return apply('aten.addmm.default', [bias, x.view(-1, inner), weight]).view(
      x.size(0),
      x.size(1),
      outer,
    );
  });
}
