/**
 * Finds the layers of each chunk of a pipeline as trainers cut them, from the stages that a
 * configuration states: one number for each chunk, in the order of the model; the embedding is with
 * the first chunk, norm, head and loss with the last. Sources: `get_num_layers_to_build` and
 * `PipelineParallelLayerLayout` of megatron-core 0.16.1; `_generate_llm_fqn_per_model_part` of
 * torchtitan 0.3.0.
 */

/** The options of Megatron-LM on its stages. */
export interface MegatronCuts {
  /** Layers of the first and the last stage, in all of their chunks. */
  readonly first?: number;
  readonly last?: number;
  /** True if the embedding, and the loss, count as a layer. */
  readonly countsEmbedding?: boolean;
  readonly countsLoss?: boolean;
}

/** A fault of the stages: the setting that is wrong, what is found, and what would do. */
export interface CutFault {
  readonly fault: string;
  readonly hint: string;
}

/** Stages as Megatron-LM cuts them. */
export function megatronCuts(
  { first, last, countsEmbedding = false, countsLoss = false }: MegatronCuts,
  pp: number,
  chunks: number,
  layers: number,
): readonly number[] | CutFault {
  const ends = Number(countsEmbedding) + Number(countsLoss);
  if ((first !== undefined || last !== undefined) && ends > 0)
    return {
      fault: 'layers of the first or last stage are stated, and embedding or loss count as a layer',
      hint: 'state one of the two.',
    };
  const stated = Number(first !== undefined) + Number(last !== undefined);
  const left = layers + ends - (first ?? 0) - (last ?? 0);
  const stages = pp - stated;
  if (left < 0 || (stages === 0 ? left !== 0 : left % stages !== 0)) {
    const parts =
      ends > 0
        ? `${layers} layers and ` +
          `${ends === 2 ? 'embedding and loss' : countsEmbedding ? 'the embedding' : 'the loss'}`
        : stated > 0
          ? `the ${left} layers that are left`
          : `${layers} layers`;
    return {
      fault: `${parts} do not divide over ${stages} stages (pipeline_model_parallel_size ${pp})`,
      hint:
        'decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers or ' +
        'pipeline_model_parallel_layout state other parts.',
    };
  }
  const middle = stages === 0 ? 0 : left / stages;
  const perStage = Array.from({ length: pp }, (_, i) =>
    i === 0 ? (first ?? middle) : i === pp - 1 ? (last ?? middle) : middle,
  );
  const torn = perStage.find((n) => n % chunks !== 0);
  if (torn !== undefined)
    return {
      fault: `${torn} layers of a stage do not divide over its ${chunks} chunks`,
      hint: 'change the chunks, or state pipeline_model_parallel_layout.',
    };
  const cuts = Array.from({ length: pp * chunks }, (_, k) => perStage[k % pp] / chunks);
  cuts[0] -= Number(countsEmbedding);
  cuts[cuts.length - 1] -= Number(countsLoss);
  return cuts;
}

/**
 * A pipeline layout of Megatron-LM: letters of each chunk (E embedding, t layer, m further token, L
 * loss), chunks apart by `|`.
 */
export interface StageLetters {
  readonly layers: readonly number[];
  /** Chunks that hold neither layers nor embedding nor loss. */
  readonly empty: number;
  /** Further tokens that are predicted. */
  readonly further: number;
}

/** Reads such a layout, of letters or, as a dump has it, of words; undefined where it is none. */
export function stageLetters(text: string): StageLetters | undefined {
  let letters = text
    .replace(/\bembedding\b/g, 'E')
    .replace(/\bdecoder\b/g, 't')
    .replace(/\bmtp\b/g, 'm')
    .replace(/\bloss\b/g, 'L')
    .replace(/[\s,]/g, '');
  // Repetitions grow a text: what is longer than any model is none.
  const repeated = (_: string, part: string, times: string): string =>
    part.length * Number(times) > MOST_LETTERS ? '?' : part.repeat(Number(times));
  letters = letters.replace(/\(([^()]+)\)\*(\d+)/g, repeated).replace(/(.)\*(\d+)/g, repeated);
  if (!/^E[tm|]*L$/.test(letters) || letters.length > MOST_LETTERS) return undefined;
  const chunks = letters.split('|');
  const count = (chunk: string, letter: string): number => chunk.split(letter).length - 1;
  return {
    layers: chunks.map((chunk) => count(chunk, 't')),
    empty: chunks.filter((chunk) => !/[EtL]/.test(chunk)).length,
    further: count(letters, 'm'),
  };
}

/** Stages in letters, without repetitions: E embedding, t layer, L norm, head and loss. */
export function stageText(cuts: readonly number[]): string {
  return cuts
    .map((n, i) => `${i === 0 ? 'E' : ''}${'t'.repeat(n)}${i === cuts.length - 1 ? 'L' : ''}`)
    .join('|');
}

const MOST_LETTERS = 2 ** 14;

/**
 * Chunks as torchtitan cuts them: embedding and head count as `inputWeight` and `outputWeight`
 * layers.
 */
export function torchtitanCuts(
  chunks: number,
  layers: number,
  inputWeight: number,
  outputWeight: number,
): readonly number[] | CutFault {
  if (chunks === 1) return [layers];
  const counted = layers + inputWeight + outputWeight;
  const each = Math.floor(counted / chunks);
  const most = Math.max(inputWeight, outputWeight, 1);
  if (each < most)
    return {
      fault:
        `${layers} layers, and ${inputWeight} and ${outputWeight} for embedding and head, give ` +
        `${chunks} chunks ${each} each, wanted ${most} or more`,
      hint:
        'change pipeline_parallel_degree, pipeline_parallel_first_stage_less_layers or ' +
        'pipeline_parallel_last_stage_less_layers.',
    };
  return Array.from(
    { length: chunks },
    (_, k) =>
      each +
      Number(k < counted % chunks) -
      (k === 0 ? inputWeight : k === chunks - 1 ? outputWeight : 0),
  );
}

/**
 * Layers of every part of a model whose modules are named one by one, as torchtitan's
 * `module_fqns_per_model_part` has them: `[["tok_embeddings", "layers.0"], ["layers.1", "norm",
 * "output"]]`; undefined where they are others, or in another order.
 */
export function namedParts(text: string): readonly number[] | undefined {
  let parts: unknown;
  try {
    parts = JSON.parse(text.replaceAll("'", '"').replace(/,\s*\]/g, ']'));
  } catch {
    return undefined;
  }
  if (!Array.isArray(parts) || !parts.every((part) => Array.isArray(part) && part.length > 0))
    return undefined;
  const names = parts as readonly (readonly unknown[])[];
  const layers = names.map(
    (part) => part.filter((name) => typeof name === 'string' && /^layers\.\d+$/.test(name)).length,
  );
  const all = layers.reduce((sum, n) => sum + n, 0);
  const [last] = names[names.length - 1].slice(-1);
  const wanted = [
    'tok_embeddings',
    ...Array.from({ length: all }, (_, i) => `layers.${i}`),
    'norm',
    last === 'lm_head' ? 'lm_head' : 'output',
  ];
  const found = names.flat();
  // The norm is priced with the head.
  const isNormApart = names[names.length - 1].at(-2) !== 'norm';
  return isNormApart ||
    found.length !== wanted.length ||
    found.some((name, i) => name !== wanted[i])
    ? undefined
    : layers;
}

/** `4+2x13+5`: equal neighbours together. */
export function cutsText(cuts: readonly number[]): string {
  const runs: [n: number, times: number][] = [];
  for (const n of cuts) {
    const last = runs.at(-1);
    if (last?.[0] === n) last[1]++;
    else runs.push([n, 1]);
  }
  return runs.map(([n, times]) => (times === 1 ? String(n) : `${n}x${times}`)).join('+');
}
