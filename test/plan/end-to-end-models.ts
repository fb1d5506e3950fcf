import type { Graph } from '../../src/graph/types.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { input, parameter, type TensorSpec } from '../../src/trace/record/spec.ts';
import {
  crossEntropy,
  embedding,
  scaledDotProductAttention,
} from '../../src/trace/tensor/functional.ts';
import type { Tensor } from '../../src/trace/tensor/tensor.ts';
import { trace } from '../../src/trace/trace.ts';

/**
 * The programs of the end-to-end oracle (`fixtures/oracle/e2e.json.gz`), as its notes describe
 * them: forward and backward of an MLP 16-32-16 with gelu, of attention 16 wide with 4 heads, both
 * with the sum of squares as loss, and of a Llama of 2 layers with vocabulary 32, width 16 and ffn
 * 32; batch 8, 8 tokens. The rows of the MLP are not noted: 64 are enough for the weights to be
 * what is gathered when both are cut (with 8, gathering the rows is cheaper), as in the recording.
 */
const BATCH = 8;
const ROWS = 64;
const TOKENS = 8;
const WIDTH = 16;
const HEADS = 4;
const HIDDEN = 32;
const VOCABULARY = 32;
const LAYERS = 2;

type Weights = Readonly<Record<string, Tensor>>;
type Specs = Readonly<Record<string, TensorSpec>>;

function training(f: (inputs: Weights) => Tensor, specs: Specs): Graph {
  return jointGraph(trace(f, specs), { seed: 1 });
}

export const squares = (y: Tensor): Tensor => y.mul(y).sum();

/** Inputs of a program that hold data, by name. */
export const DATA = ['x', 'tokens', 'targets'];

function mlp(bias: boolean): Graph {
  const specs: Record<string, TensorSpec> = {
    x: input([ROWS, WIDTH]),
    'w1.weight': parameter([HIDDEN, WIDTH]),
    'w2.weight': parameter([WIDTH, HIDDEN]),
  };
  if (bias) {
    specs['w1.bias'] = parameter([HIDDEN]);
    specs['w2.bias'] = parameter([WIDTH]);
  }
  return training(
    (w) =>
      squares(w.x.linear(w['w1.weight'], w['w1.bias']).gelu().linear(w['w2.weight'], w['w2.bias'])),
    specs,
  );
}

function attend(w: Weights, prefix: string, x: Tensor, causal: boolean): Tensor {
  const heads = (name: string): Tensor =>
    x
      .linear(w[`${prefix}${name}.weight`])
      .view(BATCH, TOKENS, HEADS, WIDTH / HEADS)
      .transpose(1, 2);
  const made = scaledDotProductAttention(heads('wq'), heads('wk'), heads('wv'), { causal });
  return made.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH).linear(w[`${prefix}wo.weight`]);
}

const square = parameter([WIDTH, WIDTH]);
const attentionWeights = (prefix: string): Specs =>
  Object.fromEntries(['wq', 'wk', 'wv', 'wo'].map((name) => [`${prefix}${name}.weight`, square]));

function attention(): Graph {
  return training((w) => squares(attend(w, '', w.x, false)), {
    x: input([BATCH, TOKENS, WIDTH]),
    ...attentionWeights(''),
  });
}

function llama(): Graph {
  const norm = (x: Tensor, weight: Tensor): Tensor =>
    x.mul(x.mul(x).mean(-1, true).add(1e-5).rsqrt()).mul(weight);
  const specs: Record<string, TensorSpec> = {
    tokens: input([BATCH, TOKENS], 'i64'),
    targets: input([BATCH, TOKENS], 'i64'),
    'emb.weight': parameter([VOCABULARY, WIDTH]),
    'norm.weight': parameter([WIDTH]),
    'out.weight': parameter([VOCABULARY, WIDTH]),
  };
  for (let i = 0; i < LAYERS; i++)
    Object.assign(specs, {
      [`layers.${i}.n1.weight`]: parameter([WIDTH]),
      [`layers.${i}.n2.weight`]: parameter([WIDTH]),
      ...attentionWeights(`layers.${i}.attn.`),
      [`layers.${i}.ffn.w1.weight`]: parameter([HIDDEN, WIDTH]),
      [`layers.${i}.ffn.w2.weight`]: parameter([WIDTH, HIDDEN]),
      [`layers.${i}.ffn.w3.weight`]: parameter([HIDDEN, WIDTH]),
    });
  return training((w) => {
    let h = embedding(w['emb.weight'], w.tokens);
    for (let i = 0; i < LAYERS; i++) {
      h = h.add(attend(w, `layers.${i}.attn.`, norm(h, w[`layers.${i}.n1.weight`]), true));
      const x = norm(h, w[`layers.${i}.n2.weight`]);
      const ffn = (name: string, of: Tensor): Tensor =>
        of.linear(w[`layers.${i}.ffn.${name}.weight`]);
      h = h.add(ffn('w2', ffn('w1', x).silu().mul(ffn('w3', x))));
    }
    const scores = norm(h, w['norm.weight']).linear(w['out.weight']);
    return crossEntropy(scores.view(BATCH * TOKENS, VOCABULARY), w.targets.view(BATCH * TOKENS));
  }, specs);
}

const PROGRAMS: Readonly<Record<string, () => Graph>> = {
  mlp: () => mlp(false),
  mlp_bias: () => mlp(true),
  attn: attention,
  llama,
};

/** @throws Error for a model that the oracle does not have */
export function program(model: string): Graph {
  const made = PROGRAMS[model];
  if (made === undefined) throw new Error(`no program '${model}'`);
  return made();
}
