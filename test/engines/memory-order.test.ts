import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, describe, expect, test } from 'vitest';

import { exportSource } from '../../src/backend/target.ts';
import { builtinOperators } from '../../src/entries/ops.ts';
import { DEFAULT_REQUEST } from '../../src/entries/plan.ts';
import { torchTarget } from '../../src/export/torch/target.ts';
import { importGraph } from '../../src/index.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { cli } from '../cli/support.ts';
import { type Checked, startChecks } from './support/checks.ts';

/**
 * Kernels whose numbers depend on the memory order of their operands, behind moves along inner dims:
 * two gloo processes by the exported program, and one process by the program before it was cut.
 */
const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
const checked = startChecks();
const folder = mkdtempSync(join(tmpdir(), 'shardwright-order-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const table = builtinOperators();

/** A program with these inputs and lines, which returns the values that are named. */
interface Case {
  readonly inputs: Readonly<Record<string, string>>;
  readonly lines: readonly string[];
  readonly returns: readonly string[];
  readonly pins: Readonly<Record<string, string>>;
}

const ops = 'torch.ops.aten';
const CASES: Readonly<Record<string, Case>> = {
  'attention, weight norm, complex views and views by strides': {
    inputs: {
      q: 'f64[1, 2, 8, 4]',
      k: 'f64[1, 2, 8, 4]',
      v: 'f64[1, 2, 8, 4]',
      rows: 'f64[2, 8, 3, 4]',
      weight: 'f64[8, 4, 6]',
      gain: 'f64[1, 1, 6]',
      x: 'f64[8, 8, 2]',
      w: 'f64[8, 8, 2]',
      few: 'f64[2, 8, 2]',
      table: 'f64[4, 6]',
    },
    lines: [
      `attn = ${ops}._scaled_dot_product_flash_attention_for_cpu.default(q, k, v, 0.0, True)`,
      'out: "f64[1, 2, 8, 4]" = attn[0]',
      // Heads that were columns of a projection: their rows are not neighbours in memory.
      `heads: "f64[2, 3, 8, 4][96, 4, 12, 1]" = ${ops}.transpose.int(rows, 1, 2)`,
      `own = ${ops}._scaled_dot_product_flash_attention_for_cpu.default(heads, heads, heads, 0.0, True)`,
      'seen: "f64[2, 3, 8, 4]" = own[0]',
      `back: "f64[2, 8, 3, 4]" = ${ops}.transpose.int(seen, 1, 2)`,
      `flat: "f64[2, 8, 12]" = ${ops}.view.default(back, [2, 8, 12])`,
      `wn = ${ops}._weight_norm_interface.default(weight, gain, 2)`,
      'normed: "f64[8, 4, 6]" = wn[0]',
      `a: "c128[8, 8]" = ${ops}.view_as_complex.default(x)`,
      `b: "c128[8, 8]" = ${ops}.view_as_complex.default(w)`,
      `c: "c128[8, 8]" = ${ops}.mul.Tensor(a, b)`,
      `pairs: "f64[8, 8, 2]" = ${ops}.view_as_real.default(c)`,
      `bent: "f64[2, 8, 2]" = ${ops}.relu.default(few)`,
      `z: "c128[2, 8]" = ${ops}.view_as_complex.default(bent)`,
      `exchanged: "f64[2, 8, 2]" = ${ops}.view_as_real.default(z)`,
      `cells: "f64[4, 6]" = ${ops}.relu.default(table)`,
      `steps: "f64[6, 3]" = ${ops}.as_strided.default(cells, [6, 3], [4, 1])`,
    ],
    returns: ['out', 'flat', 'normed', 'pairs', 'exchanged', 'steps'],
    pins: {
      ...{ q: 'S(3)', k: 'S(3)', v: 'S(3)', rows: 'S(3)', heads: 'S(3)', seen: 'R' },
      ...{ weight: 'S(1)', normed: 'R', x: 'S(2)', w: 'S(1)', c: 'S(0)' },
      ...{ few: 'S(2)', bent: 'S(2)', z: 'S(0)', table: 'S(1)', cells: 'S(1)', steps: 'R' },
    },
  },
  'inputs in channels last, which callers may give in another order': {
    inputs: {
      x: 'f64[4, 4, 6, 6][144, 1, 24, 4]',
      w: 'f64[8, 4, 3, 3][36, 1, 12, 4]',
      gain: 'f64[8]',
      bias: 'f64[8]',
    },
    lines: [
      `c: "f64[4, 8, 6, 6][288, 1, 48, 8]" = ${ops}.convolution.default(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)`,
      `norm = ${ops}.native_group_norm.default(c, gain, bias, 4, 8, 36, 2, 1e-05)`,
      'normed: "f64[4, 8, 6, 6][288, 1, 48, 8]" = norm[0]',
      'mean: "f64[4, 2]" = norm[1]',
      'scale: "f64[4, 2]" = norm[2]',
      `cut: "f64[4, 8, 6, 6][288, 1, 48, 8]" = ${ops}.silu.default(normed)`,
      `g: "f64[4, 8, 6, 6][288, 1, 48, 8]" = ${ops}.exp.default(cut)`,
      // Its kernel takes both operands to lie alike.
      `back = ${ops}.native_group_norm_backward.default(g, c, mean, scale, gain, 4, 8, 36, 2, [True, True, True])`,
      'dx: "f64[4, 8, 6, 6][288, 1, 48, 8]" = back[0]',
      'dgain: "f64[8]" = back[1]',
    ],
    returns: ['normed', 'dx', 'dgain'],
    pins: { cut: 'S(2)', g: 'S(2)', c: 'R', dx: 'R' },
  },
  'factors of matrices, whose kernels take a matrix in row-major order for its transpose': {
    inputs: { x: 'f64[4, 6, 6]', s: 'f64[6, 6]', g: 'f64[4, 6, 6]' },
    lines: [
      `twin: "f64[4, 6, 6]" = ${ops}.bmm.default(x, x)`,
      `even: "f64[4, 6, 6]" = ${ops}.mul.Tensor(twin, 0.0)`,
      `a: "f64[4, 6, 6]" = ${ops}.add.Tensor(even, s)`,
      `square: "f64[4, 6, 6]" = ${ops}.exp.default(a)`,
      `t: "f64[4, 6, 6][36, 1, 6]" = ${ops}.transpose.int(square, 1, 2)`,
      `gram: "f64[4, 6, 6]" = ${ops}.bmm.default(square, t)`,
      `eye: "f64[6, 6]" = ${ops}.eye.default(6, dtype = torch.float64, device = device(type='cpu'), pin_memory = False)`,
      `sure: "f64[4, 6, 6]" = ${ops}.add.Tensor(gram, eye)`,
      `factor = ${ops}.linalg_cholesky_ex.default(sure)`,
      // Column by column, as LAPACK leaves it, which the line of the tuple does not say.
      'lower: "f64[4, 6, 6][36, 1, 6]" = factor[0]',
      `logs = ${ops}._linalg_slogdet.default(lower)`,
      'value: "f64[4]" = logs[1]',
      'lu: "f64[4, 6, 6][36, 1, 6]" = logs[2]',
      'pivots: "i32[4, 6]" = logs[3]',
      `slope: "f64[4, 6, 6][36, 1, 6]" = ${ops}.linalg_lu_solve.default(lu, pivots, g, adjoint = True)`,
    ],
    returns: ['value', 'slope'],
    pins: { sure: 'S(0)', lower: 'S(0)', value: 'R', lu: 'R', pivots: 'R', slope: 'S(0)' },
  },
  'complex numbers that change their dim': {
    inputs: { x: 'f64[2048, 2048, 2]' },
    lines: [
      `a: "c128[2048, 2048]" = ${ops}.view_as_complex.default(x)`,
      `b: "c128[2048, 2048]" = ${ops}.mul.Tensor(a, a)`,
      `c: "c128[2048, 2048]" = ${ops}.mul.Tensor(b, b)`,
      `pairs: "f64[2048, 2048, 2]" = ${ops}.view_as_real.default(c)`,
    ],
    returns: ['pairs'],
    pins: { x: 'S(0)', a: 'S(0)', b: 'S(1)', c: 'S(0)', pairs: 'R' },
  },
  // Short integers move as their bytes and are summed as wider ones, which wrap as they do.
  'numbers that backends refuse': {
    inputs: { x: 'i16[7, 6]', y: 'u16[8, 6]', z: 'u64[8, 6]', w: 'f32[7, 5]' },
    lines: [
      `a: "i16[7, 6]" = ${ops}.clone.default(x)`,
      `b: "i16[7, 6]" = ${ops}.neg.default(a)`,
      `c: "i16[6]" = ${ops}.sum.dim_IntList(b, [0], False, dtype = torch.int16)`,
      `d: "i16[6]" = ${ops}.neg.default(c)`,
      `e: "u16[8, 6]" = ${ops}.clone.default(y)`,
      `f: "u64[8, 6]" = ${ops}.clone.default(z)`,
      `g: "f8e4m3fn[7, 5]" = ${ops}._to_copy.default(w, dtype = torch.float8_e4m3fn)`,
      `h: "f8e4m3fn[7, 5]" = ${ops}.clone.default(g)`,
      `i: "f32[7, 5]" = ${ops}._to_copy.default(h, dtype = torch.float32)`,
    ],
    returns: ['b', 'd', 'e', 'f', 'i'],
    pins: {
      ...{ x: 'S(1)', a: 'S(0)', b: 'S(0)', d: 'R', y: 'S(1)', e: 'R', z: 'S(0)', f: 'S(1)' },
      ...{ w: 'S(1)', g: 'S(1)', h: 'R', i: 'R' },
    },
  },
  'the draws of dropout': {
    inputs: { x: 'f64[8, 8]', y: 'f64[8, 6]', m: 'f64[4, 8]', w: 'f64[8, 6]' },
    lines: [
      `first = ${ops}.native_dropout.default(x, 0.5, True)`,
      'gathered: "f64[8, 8]" = first[0]',
      `t: "f64[6, 8][1, 6]" = ${ops}.t.default(y)`,
      `second = ${ops}.native_dropout.default(t, 0.5, True)`,
      'turned: "f64[6, 8]" = second[0]',
      `h: "f64[4, 6]" = ${ops}.mm.default(m, w)`,
      `g: "f64[4, 6]" = ${ops}.relu.default(h)`,
      `third = ${ops}.native_dropout.default(g, 0.5, True)`,
      'scattered: "f64[4, 6]" = third[0]',
    ],
    returns: ['gathered', 'turned', 'scattered'],
    pins: {
      ...{ x: 'S(1)', gathered: 'R', y: 'S(0)', t: 'S(1)', turned: 'S(0)' },
      ...{ m: 'S(1)', w: 'S(0)', g: 'S(1)', scattered: 'R' },
    },
  },
};

async function check(name: string): Promise<Checked> {
  const { inputs, lines, returns, pins } = CASES[name];
  const typed = Object.entries(inputs).map(([input, type]) => `${input}: "${type}"`);
  const text = [
    'class m(torch.nn.Module):',
    `    def forward(self, ${typed.join(', ')}):`,
    ...[...lines, `return (${returns.join(', ')},)`].map((line) => `        ${line}`),
  ].join('\n');
  const graph = importGraph(text);
  const request = {
    ...DEFAULT_REQUEST,
    mesh: 'tp=2',
    cluster: 'dgx-h100',
    pins: Object.entries(pins).map(([node, spec]) => ({ node, spec })),
  };
  const result = await leastCostPlan(graph, request, { table });
  if (result.status !== 'planned') throw new Error(`${name} has no plan`);
  const source = exportSource({ plan: result.plan, program: result.graph }, table);
  const at = join(folder, name.replaceAll(/\W+/g, '-'));
  for (const file of torchTarget.check?.(source) ?? []) {
    mkdirSync(dirname(join(at, file.name)), { recursive: true });
    writeFileSync(join(at, file.name), file.text);
  }
  return checked(at, 2);
}

describe('a moved value lies in the memory order of one process', () => {
  test.each(Object.keys(CASES))('%s', async (name) => {
    expect(await check(name)).toMatchObject({ compared: CASES[name].returns.length, failed: [] });
  });
});

/** Its three heads do not divide over two devices. */
const LLAMA = {
  model_type: 'llama',
  architectures: ['LlamaForCausalLM'],
  num_hidden_layers: 2,
  num_attention_heads: 3,
  num_key_value_heads: 3,
  hidden_size: 24,
  intermediate_size: 40,
  vocab_size: 32,
  max_position_embeddings: 16,
  torch_dtype: 'float64',
};
const WEIGHTS = [
  ...['q_proj', 'k_proj', 'v_proj', 'o_proj'].map((name) => `self_attn.${name}`),
  ...['gate_proj', 'up_proj', 'down_proj'].map((name) => `mlp.${name}`),
];

test('gradients of a Llama whose heads do not divide are those of one process', async () => {
  const at = join(folder, 'llama');
  mkdirSync(at);
  writeFileSync(join(at, 'config.json'), JSON.stringify(LLAMA));
  const weights = [0, 1].flatMap((layer) =>
    WEIGHTS.map((name) => `model.layers.${layer}.${name}.weight=S(0)`),
  );
  // Queries, keys and values of the first layer are cut by their channels, and gathered for the
  // kernel of attention.
  const values = ['transpose_3=S(3)', 'add_1=S(3)', 'add_2=S(3)', 'getitem=R'];
  const pins = [...weights, ...values].flatMap((pin) => ['--pin', pin]);
  const options = ['--training', '--no-recipes', '--mesh', 'tp=2', '--cluster', 'dgx-h100'];
  const plan = await cli('plan', '-v', join(at, 'config.json'), ...options, ...pins, '-o', at);
  expect(plan.code, plan.err).toBe(0);
  const written = await cli('export', at, '--target', 'torch', '--check', '-o', at);
  expect(written.code, written.err).toBe(0);
  const answer = await checked(at, 2);
  expect(answer).toMatchObject({ compared: 22, failed: [] });
  expect(answer.worst).toBeLessThan(1e-12);
});

test('a step of LoRA on a Llama with all weights cut over all devices is that of one process', async () => {
  const at = join(folder, 'lora');
  mkdirSync(at);
  const graph = join(at, 'lora.fx.txt');
  const captured = spawnSync(
    python,
    [fileURLToPath(new URL('samples/lora.py', import.meta.url)), graph],
    {
      encoding: 'utf8',
      env: { ...process.env, PYTHONPATH: fileURLToPath(new URL('../../python', import.meta.url)) },
    },
  );
  expect(captured.status, captured.stderr).toBe(0);
  const weights = captured.stdout.trim().split('\n');
  const pins = weights.flatMap((name) => ['--pin', `${name}=S(0)S(0)`]);
  const options = ['--no-recipes', '--mesh', 'dp=2,tp=2', '--cluster', 'dgx-h100'];
  const plan = await cli('plan', '-v', graph, ...options, ...pins, '-o', at);
  expect(plan.code, plan.err).toBe(0);
  const written = await cli('export', at, '--target', 'torch', '--check', '-o', at);
  expect(written.code, written.err).toBe(0);
  const answer = await checked(at, 4);
  // The loss, and the gradients of both factors of seven projections in two layers.
  expect(answer).toMatchObject({ compared: 1 + 2 * 7 * 2, failed: [] });
  expect(answer.worst).toBeLessThan(1e-12);
}, 300_000);
