/**
 * Sets `inference` against published figures and prints the tables of `docs/inference.md`. No
 * constant is fitted to them. Run: `npx tsx bench/inference.ts`.
 */

import { modelEntry } from '../src/models/registry.ts';
import { builtinOperators } from '../src/ops/builtin.ts';
import {
  inference,
  type InferenceAnswer,
  type ServedLayout,
} from '../src/sweep/inference/inference.ts';
import type { InferenceQuestion, ServingSizes } from '../src/sweep/inference/question.ts';

/** One published figure with the question that it answers. */
interface Published {
  readonly source: string;
  readonly model: string;
  readonly cluster: string;
  readonly devices: number;
  readonly layout: Partial<ServingSizes>;
  readonly prompt: number;
  readonly generated: number;
  readonly format: 'bf16' | 'fp8';
  readonly requests?: number;
  readonly measured: number;
  readonly unit: 'tokens/s' | 'ms';
  readonly of: (plan: ServedLayout) => number;
}

const THROUGHPUT = 'TensorRT-LLM 1.0, docs/source/performance/perf-overview.md';
const LATENCY = 'TensorRT-LLM 0.6.1, docs/source/performance.md, low latency (v0.5)';
const DEEPSEEK = 'DeepSeek, open-infra-index, Day 6 (H800, decoding, 20 to 22 tokens/s a request)';
const VLLM = 'vLLM 0.23 on an A100 40 GB, one request (johnmusgrave.com)';

/** Prompt and answer of the rows of the table. */
const LENGTHS = [
  [128, 128],
  [128, 2048],
  [128, 4096],
  [500, 2000],
  [1000, 1000],
  [1000, 2000],
  [2048, 128],
  [2048, 2048],
  [5000, 500],
  [20000, 2000],
] as const;

function throughput(
  model: string,
  cluster: string,
  layout: ServingSizes,
  figures: readonly (number | null)[],
): Published[] {
  return LENGTHS.flatMap(([prompt, generated], i): Published[] => {
    const measured = figures[i];
    if (measured === null || measured === undefined) return [];
    const { dp, pp, tp } = layout;
    return [
      {
        source: THROUGHPUT,
        model,
        cluster,
        devices: dp * pp * tp,
        layout,
        prompt,
        generated,
        format: 'fp8',
        measured,
        unit: 'tokens/s',
        of: (plan) => plan.tokensPerSecond,
      },
    ];
  });
}

function firstToken(
  model: string,
  cluster: string,
  tp: number,
  format: 'bf16' | 'fp8',
  figures: readonly (readonly [number, number])[],
): Published[] {
  return figures.map(([prompt, measured]) => ({
    source: LATENCY,
    model,
    cluster,
    devices: tp,
    layout: { tp },
    prompt,
    generated: 2,
    format,
    requests: 1,
    measured,
    unit: 'ms',
    of: (plan) => 1e3 * plan.firstTokenSeconds,
  }));
}

const one = (tp: number): ServingSizes => ({ dp: 1, pp: 1, tp, ep: 1 });
/** `enable_attention_dp` of the recipe for mixtures of experts: every device has its own requests. */
const shared = (ep: number): ServingSizes => ({ dp: ep, pp: 1, tp: 1, ep });

const PUBLISHED: readonly Published[] = [
  ...throughput(
    'llama-3.1-8b',
    'dgx-h100',
    one(1),
    [28312, 22714, 14325, 17660, 15220, 13899, 3450, 9305, 3459, 1351],
  ),
  ...throughput(
    'llama-3.1-8b',
    'dgx-h200',
    one(1),
    [27911, 26221, 18027, 20770, 17744, 16828, 3538, 12194, 3902, 1804],
  ),
  ...throughput(
    'llama-3.1-70b',
    'dgx-h100',
    one(2),
    [6378, 6651, 4199, 5222, 4205, 4146, 762, 3082, 898, 437],
  ),
  ...throughput(
    'llama-3.1-70b',
    'dgx-h200',
    one(1),
    [3803, 4336, 2872, 3666, 2909, 2994, 442, 2003, 566, 283],
  ),
  ...throughput(
    'llama-3.1-405b',
    'dgx-h100',
    one(8),
    [3627, 4340, 3116, 3994, 2919, 2895, 453, 2296, 610, 345],
  ),
  ...throughput(
    'llama-3.1-405b',
    'dgx-h200',
    one(8),
    [3814, 5348, 4741, 4724, 3330, 3722, 456, 2948, 650, 505],
  ),
  ...throughput('qwen3-235b-a22b', 'dgx-h100', shared(8), [
    null,
    19658,
    12447,
    18351,
    14898,
    15136,
    null,
    9924,
    3225,
    null,
  ]),
  ...throughput(
    'qwen3-235b-a22b',
    'dgx-h200',
    shared(8),
    [30429, 42821, 26852, 28026, 23789, 22061, 3331, 16672, 3623, 1876],
  ),
  ...firstToken('llama-2-7b', 'dgx-h100', 1, 'fp8', [
    [128, 7],
    [2048, 36],
  ]),
  ...firstToken('llama-2-70b', 'dgx-h100', 4, 'fp8', [
    [128, 26],
    [2048, 109],
  ]),
  ...firstToken('llama-2-7b', 'dgx-a100-80gb', 1, 'bf16', [
    [128, 16],
    [2048, 133],
  ]),
  ...firstToken('llama-2-70b', 'dgx-a100-80gb', 4, 'bf16', [
    [128, 47],
    [2048, 377],
  ]),
  {
    source: VLLM,
    model: 'llama-3.1-8b',
    cluster: 'a100-40gb',
    devices: 1,
    layout: {},
    prompt: 1024,
    generated: 128,
    format: 'bf16',
    requests: 1,
    measured: 1e3 / 75,
    unit: 'ms',
    of: (plan) => 1e3 * plan.aloneSeconds,
  },
  {
    source: DEEPSEEK,
    model: 'deepseek-v3',
    cluster: 'h800',
    devices: 128,
    layout: { dp: 128, tp: 1, ep: 128 },
    prompt: 4489,
    generated: 1000,
    format: 'fp8',
    // 14,800 tokens a second of a node of eight, at 21 a request.
    requests: Math.round((128 * 14800) / 8 / 21),
    measured: 1e3 / 21,
    unit: 'ms',
    of: (plan) => 1e3 * plan.decodeSeconds,
  },
];

async function answerOf(row: Published): Promise<InferenceAnswer> {
  const { model, devices, cluster, prompt, generated, format, layout, requests } = row;
  const question: InferenceQuestion = {
    model,
    config: JSON.stringify(modelEntry(model).config),
    devices,
    cluster,
    prompt,
    generated,
    weights: format,
    // DeepSeek keeps its caches in 16 bits.
    cache: row.source === DEEPSEEK ? 'bf16' : format,
    layout,
    ...(requests === undefined ? {} : { requests }),
  };
  return inference(question, builtinOperators());
}

const lines = new Map<string, string[]>();
const errors = new Map<string, number[]>();
for (const row of PUBLISHED) {
  const { plans } = await answerOf(row);
  const [plan] = plans;
  if (plan === undefined) throw new Error(`no plan for ${row.model}`);
  const predicted = row.of(plan);
  const ratio = predicted / row.measured;
  const what = row.unit === 'ms' ? 'time' : 'tokens/s';
  const key = `${row.source} | ${row.model} | ${row.cluster}, ${plan.mesh}`;
  const list = lines.get(key) ?? [];
  lines.set(key, list);
  const [shown, told] = [row.measured, predicted].map((x) =>
    row.unit === 'ms' ? `${x.toFixed(1)} ms` : x.toFixed(0),
  );
  list.push(`${row.prompt}/${row.generated}: ${shown}, ${told}, ${ratio.toFixed(2)}`);
  const kind = `${row.source}${row.model.startsWith('qwen3') ? ' (experts)' : ''}, ${what}`;
  errors.set(kind, [...(errors.get(kind) ?? []), ratio]);
}
for (const [key, list] of lines) console.log(`${key}\n  ${list.join('\n  ')}`);
for (const [kind, ratios] of errors) {
  const sorted = [...ratios].sort((a, b) => a - b);
  const mape = ratios.reduce((sum, r) => sum + Math.abs(r - 1), 0) / ratios.length;
  console.log(
    `${kind}: ${ratios.length} figures, mean error ${(100 * mape).toFixed(1)} %, predicted over ` +
      `measured ${sorted[0]?.toFixed(2)} to ${sorted.at(-1)?.toFixed(2)}, median ` +
      `${sorted[Math.floor(sorted.length / 2)]?.toFixed(2)}`,
  );
}
