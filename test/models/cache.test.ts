import { describe, expect, it } from 'vitest';

import { roleName } from '../../src/graph/nodes.ts';
import type { Graph } from '../../src/graph/types.ts';
import { exampleShape } from '../../src/graph/value.ts';
import { readModelConfig } from '../../src/models/families.ts';
import type { JsonRecord } from '../../src/models/read-config.ts';
import { build, flat, NDArray } from '../../src/ndarray/array.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';
import { drawInputs } from '../../src/simulate/inputs.ts';
import { trace } from '../../src/trace/trace.ts';
import { FULL } from '../support/full.ts';
import { TINY } from './tiny.ts';

/**
 * Inference with a cache gives the numbers of one pass over the whole sequence: a prompt fills the
 * cache, one token is read behind it, and its logits are those of the last token of the whole.
 */

const table = builtinOperators();
const BATCH = 2;
const LENGTH = 19;

/** The program of a family, over `seq` new tokens. */
function programOf(family: string, seq: number, held?: number): Graph {
  const { architecture } = readModelConfig(TINY[family] as JsonRecord);
  const sizes = { batch: BATCH, seq, dtype: 'f32', training: false } as const;
  const layers = architecture.shape.layers;
  const { inputs, run } = architecture.program({
    ...sizes,
    layers,
    ...(held === undefined ? {} : { held }),
  });
  return trace((given) => run(given), inputs, { name: family, table });
}

type Values = ReadonlyMap<string, NDArray>;

/** Logits and what each layer writes into its cache, in the order of their names. */
function namesOf(outputs: number, family: string): string[] {
  const kinds = family === 'deepseek_v3' ? ['latent'] : ['key', 'value'];
  const layers = Array.from({ length: (outputs - 1) / kinds.length }, (_, l) => l);
  return ['logits', ...layers.flatMap((l) => kinds.map((kind) => `${kind}_${l}`))].sort();
}

/** The results of a program by name, with the values that its placeholders are given. */
function resultsOf(graph: Graph, given: Values): Values {
  const inputs = graph.nodes
    .filter(({ kind }) => kind === 'placeholder')
    .map((node) => {
      const value = given.get(roleName(node));
      if (value === undefined) throw new Error(`no value for ${roleName(node)}`);
      return value;
    });
  const { outputs } = evaluateGraph(table, graph, inputs);
  return new Map(
    graph.outputs.map((_, i) => {
      const value = outputs[i];
      if (!(value instanceof NDArray)) throw new Error('a result is no array');
      return [namesOf(graph.outputs.length, graph.name)[i], value] as const;
    }),
  );
}

/** Rows [batch, heads, rows, width] of a cache: the last ones that were written, and room for one. */
function cacheOf(written: NDArray, rows: number): NDArray {
  const heads4 = written.shape.length === 4;
  const [heads, tokens, width] = heads4 ? written.shape.slice(1) : [1, ...written.shape.slice(1)];
  return build(
    [BATCH, heads, rows, width],
    (i) => {
      const [channel, row] = [i % width, Math.floor(i / width) % rows];
      const [head, sequence] = [
        Math.floor(i / width / rows) % heads,
        Math.floor(i / width / rows / heads),
      ];
      if (row === rows - 1) return 0;
      const token = tokens - (rows - 1) + row;
      return heads4
        ? written.at(sequence, head, token, channel)
        : written.at(sequence, token, channel);
    },
    'f32',
  );
}

/** The prompt's values, and the new rows in the caches of the next token. */
function nextInputs(decode: Graph, weights: Values, ids: NDArray, prompt: Values): Values {
  const given = new Map(weights);
  given.set('input_ids', ids);
  for (const node of decode.nodes) {
    const [, layer, name] = /layers\.(\d+)\.self_attn\.past_(\w+)$/.exec(roleName(node)) ?? [];
    if (layer === undefined || node.type.kind !== 'tensor') continue;
    const written = prompt.get(`${name}_${layer}`);
    if (written === undefined) throw new Error(`the prompt wrote no ${name}_${layer}`);
    given.set(roleName(node), cacheOf(written, exampleShape(node.type)[2]));
  }
  return given;
}

describe('inference with a cache', () => {
  it.each([
    'deepseek_v3',
    ...(FULL ? ['llama', 'gemma2', 'gpt_oss', 'llama4_text', 'qwen3_moe'] : []),
  ])('%s: a token behind a cache has the logits that it has in the whole sequence', (family) => {
    const whole = programOf(family, LENGTH);
    const names = whole.nodes.filter(({ kind }) => kind === 'placeholder').map(roleName);
    const drawn = new Map(drawInputs(table, whole, 3).map((value, i) => [names[i], value]));
    const ids = flat(drawn.get('input_ids')!);
    const tokens = (from: number, to: number): NDArray =>
      build(
        [BATCH, to - from],
        (i) => ids[Math.floor(i / (to - from)) * LENGTH + from + (i % (to - from))],
        'i64',
      );
    const expected = resultsOf(whole, drawn).get('logits')!;
    const prompt = resultsOf(
      programOf(family, LENGTH - 1, 0),
      new Map(drawn).set('input_ids', tokens(0, LENGTH - 1)),
    );
    const decode = programOf(family, 1, LENGTH - 1);
    const next = nextInputs(decode, drawn, tokens(LENGTH - 1, LENGTH), prompt);
    const logits = resultsOf(decode, next).get('logits')!;
    const vocabulary = logits.shape[2];
    expect(logits.shape).toEqual([BATCH, 1, vocabulary]);
    for (let s = 0; s < BATCH; s++)
      for (let v = 0; v < vocabulary; v += 7)
        expect(logits.at(s, 0, v)).toBeCloseTo(expected.at(s, LENGTH - 1, v), 8);
  });
});
