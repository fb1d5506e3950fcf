/** BERT's architecture from its config, with the module names of Hugging Face. */

import { activate, type Activation } from '../../trace/nn/feed-forward.ts';
import { Embedding, Linear } from '../../trace/nn/linear.ts';
import { spec } from '../../trace/record/spec.ts';
import { arange, crossEntropy, zeros } from '../../trace/tensor/functional.ts';
import { param, scope } from '../../trace/tensor/state.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';
import type { Architecture, Family, ProgramOptions } from '../architecture.ts';
import { activationOf } from '../layers/activation.ts';
import { type Classes, classesOf, classified, classifierInputs } from '../layers/classifier.ts';
import { biasedAttention, layerNorm, layersBelow, twoLayers } from '../layers/encoder-layer.ts';
import { headsFit } from '../layers/heads.ts';
import type { ConfigReader } from '../read-config.ts';

/** Query, key and value live below `self`, the output below `output`, in both BERT and ViT. */
export const SELF_NAMES = (inner: string) => ({
  query: `${inner}.query`,
  key: `${inner}.key`,
  value: `${inner}.value`,
  output: 'output.dense',
});

/** BERT: norms behind each sum; with a pooler, or with the head that predicts masked tokens. */
export const BERT: Family = {
  types: ['bert'],
  classes: ['Bert'],
  read: (config, _type, className) =>
    architecture(readConfig(config, className), classesOf(config, className)),
};

interface BertConfig {
  /** It predicts masked tokens. */
  readonly masked: boolean;
  readonly width: number;
  readonly heads: number;
  readonly headWidth: number;
  readonly hidden: number;
  readonly vocabulary: number;
  readonly positions: number;
  readonly kinds: number;
  readonly eps: number;
  readonly activation: Activation;
  readonly layers: number;
}

function readConfig(config: ConfigReader, className = 'BertModel'): BertConfig {
  config.checkKnown('architectures[0]', className, [
    'BertModel',
    'BertForMaskedLM',
    'BertForSequenceClassification',
    'BertForTokenClassification',
  ]);
  const width = config.size('hidden_size');
  const heads = config.size('num_attention_heads');
  return {
    masked: className === 'BertForMaskedLM',
    width,
    heads,
    headWidth: headsFit(config, 'hidden_size', width, 'num_attention_heads', heads),
    hidden: config.size('intermediate_size'),
    vocabulary: config.size('vocab_size'),
    positions: config.size('max_position_embeddings', 512),
    kinds: config.size('type_vocab_size', 2),
    eps: config.positive('layer_norm_eps') ?? 1e-12,
    activation: activationOf(config, ['hidden_act'], 'gelu'),
    layers: config.count('num_hidden_layers'),
  };
}

function architecture(config: BertConfig, classes: Classes | undefined): Architecture {
  const { masked, layers, width, heads, headWidth, hidden, vocabulary, positions } = config;
  return {
    shape: { layers, width, heads, keyHeads: heads, headWidth, hidden, vocabulary, positions },
    // The bias of the predictions has an element a row.
    rowParameters: masked ? width + 1 : width,
    learnedPositions: true,
    notes:
      masked || classes !== undefined
        ? []
        : ['BertModel has no loss: gradients start at its two results'],
    program: (options) => {
      const ids = spec([options.batch, options.seq], 'i64');
      const network = new Network(config, options, masked || classes !== undefined);
      if (classes !== undefined)
        return {
          inputs: classifierInputs(classes, options),
          run: ({ input_ids, labels }) =>
            classified(network.scores(input_ids, classes), labels, classes),
        };
      return {
        inputs: masked && options.training ? { input_ids: ids, labels: ids } : { input_ids: ids },
        run: ({ input_ids, labels }) =>
          masked ? network.predicted(input_ids, labels) : network.pooled(input_ids),
      };
    },
  };
}

/** The tensors of a program, part by part. */
class Network {
  private readonly root: string;
  private readonly rows: number;

  constructor(
    private readonly config: BertConfig,
    private readonly options: ProgramOptions,
    hasHead: boolean,
  ) {
    this.root = hasHead ? 'bert.' : '';
    this.rows = options.vocabulary ?? config.vocabulary;
  }

  /** The last hidden state, and the pooled first token. */
  pooled(ids: Tensor): Readonly<Record<string, Tensor>> {
    const last = this.encoded(ids);
    return { last, pooled: this.pool(last) };
  }

  /** The scores of the classes, of each token or of the pooled first one. */
  scores(ids: Tensor, { of, labels }: Classes): Tensor {
    const { dtype } = this.options;
    const last = this.encoded(ids);
    const read = of === 'token' ? last : this.pool(last);
    return new Linear('classifier', this.config.width, labels, { dtype }).forward(read);
  }

  private pool(last: Tensor): Tensor {
    const { width } = this.config;
    const { dtype } = this.options;
    const dense = new Linear(`${this.root}pooler.dense`, width, width, { dtype });
    return dense.forward(last.select(1, 0)).tanh();
  }

  /** The loss of masked tokens; their logits without labels. */
  predicted(ids: Tensor, labels: Tensor | undefined): Readonly<Record<string, Tensor>> {
    const logits = this.logits(this.encoded(ids));
    if (labels === undefined) return { logits };
    return { loss: crossEntropy(logits.to('f32').view(-1, this.rows), labels.view(-1)) };
  }

  private encoded(ids: Tensor): Tensor {
    const { width, kinds, positions } = this.config;
    const { seq, layers, dtype } = this.options;
    const at = (name: string): string => `${this.root}embeddings.${name}`;
    const table = new Embedding(at('word_embeddings'), this.rows, width, { dtype });
    const kind = new Embedding(at('token_type_embeddings'), kinds, width, { dtype });
    const places = new Embedding(at('position_embeddings'), positions, width, { dtype });
    const sum = table
      .forward(ids)
      .add(kind.forward(zeros([1, seq], 'i64')))
      .add(places.forward(arange(seq).unsqueeze(0)));
    const x = this.norm(at('LayerNorm'), sum);
    return layersBelow(`${this.root}encoder.layer`, layers, x, (y) => this.layer(y));
  }

  private layer(x: Tensor): Tensor {
    const { width, heads, hidden, activation } = this.config;
    const { dtype } = this.options;
    const attended = scope('attention', () => {
      const selfNames = SELF_NAMES('self');
      const out = biasedAttention(x, { width, heads, names: selfNames, causal: false, dtype });
      return this.norm('output.LayerNorm', out.add(x));
    });
    const names = ['intermediate.dense', 'output.dense'] as const;
    const made = twoLayers(attended, { width, hidden, names, activation, dtype });
    return this.norm('output.LayerNorm', made.add(attended));
  }

  private logits(last: Tensor): Tensor {
    const { width, activation } = this.config;
    const { dtype } = this.options;
    const transform = 'cls.predictions.transform';
    const dense = new Linear(`${transform}.dense`, width, width, { dtype }).forward(last);
    const turned = this.norm(`${transform}.LayerNorm`, activate(dense, activation));
    // The table of the embedding, named again, with a bias of its own.
    const table = param(`${this.root}embeddings.word_embeddings.weight`, {
      shape: [this.rows, width],
      dtype,
    });
    return turned.linear(table, param('cls.predictions.bias', { shape: [this.rows], dtype }));
  }

  private norm(name: string, x: Tensor): Tensor {
    const { width, eps } = this.config;
    return layerNorm(name, x, width, eps, this.options.dtype);
  }
}
