import { build, flatIndex, get, getBroadcast, type NDArray, zeros } from './arrays.ts';
import type { Kernel, LocalCall } from './ranks.ts';

/**
 * Float64 kernels of normalisations and attention for the validator, written from their formulas.
 */

const optional = (call: LocalCall, name: string): NDArray | undefined =>
  call.inputs[call.ctx.indexOf(name)];
function input(call: LocalCall, name: string): NDArray {
  const x = optional(call, name);
  if (x === undefined) throw new Error(`no input ${name}`);
  return x;
}

/** Splits a shape at the first normalised dim: rows and row length. */
function rowsOf(
  call: LocalCall,
  x: NDArray,
): { rows: number; length: number; stats: readonly number[] } {
  const axis = x.shape.length - call.ctx.ints('normalized_shape').length;
  const rows = x.shape.slice(0, axis).reduce((a, b) => a * b, 1);
  const length = x.shape.slice(axis).reduce((a, b) => a * b, 1);
  return { rows, length, stats: x.shape.map((n, d) => (d < axis ? n : 1)) };
}

function mean(values: readonly number[]): number {
  return values.reduce((a, b) => a + b, 0) / values.length;
}

/** Row norm; RMS norm does not subtract the mean. Results: out, then the statistics. */
const rowNorm =
  (centred: boolean): Kernel =>
  (call) => {
    const x = input(call, 'input');
    const [weight, bias] = [optional(call, 'weight'), optional(call, 'bias')];
    const { rows, length, stats } = rowsOf(call, x);
    const eps = call.ctx.optionalNumber('eps') ?? 1e-6;
    const out = zeros(x.shape);
    const means = zeros(stats);
    const rstds = zeros(stats);
    for (let r = 0; r < rows; r++) {
      const row = [...x.data.subarray(r * length, (r + 1) * length)];
      const m = centred ? mean(row) : 0;
      const rstd = 1 / Math.sqrt(mean(row.map((v) => (v - m) ** 2)) + eps);
      means.data[r] = m;
      rstds.data[r] = rstd;
      row.forEach(
        (v, i) =>
          (out.data[r * length + i] =
            (v - m) * rstd * (weight?.data[i] ?? 1) + (bias?.data[i] ?? 0)),
      );
    }
    return [out, ...(centred ? [means] : []), rstds].slice(0, call.ctx.outputs.length);
  };

const rowNormBackward =
  (centred: boolean): Kernel =>
  (call) => {
    const [g, x, rstd] = [input(call, 'grad_out'), input(call, 'input'), input(call, 'rstd')];
    const weight = optional(call, 'weight');
    const { rows, length } = rowsOf(call, x);
    const shape = call.ctx.ints('normalized_shape');
    const [dx, dw, db] = [zeros(x.shape), zeros(shape), zeros(shape)];
    for (let r = 0; r < rows; r++) {
      const m = centred ? input(call, 'mean').data[r] : 0;
      const hat = (i: number): number => (x.data[r * length + i] - m) * rstd.data[r];
      const gw = (i: number): number => g.data[r * length + i] * (weight?.data[i] ?? 1);
      const index = Array.from({ length }, (_, i) => i);
      const a = mean(index.map((i) => gw(i) * hat(i)));
      const b = centred ? mean(index.map(gw)) : 0;
      for (const i of index) {
        dx.data[r * length + i] = rstd.data[r] * (gw(i) - b - hat(i) * a);
        dw.data[i] += g.data[r * length + i] * hat(i);
        db.data[i] += g.data[r * length + i];
      }
    }
    return [dx, dw, db]
      .slice(0, call.ctx.outputs.length)
      .map((v, k) => (call.ctx.outputs[k] === null ? null : v));
  };

/** Groups are as large as the whole call says; a rank holds whole groups. */
const groupNorm: Kernel = (call) => {
  const x = input(call, 'input');
  const [weight, bias] = [optional(call, 'weight'), optional(call, 'bias')];
  const all = call.global.inputs[0].shape[1];
  const native = call.ctx.target === 'aten.native_group_norm.default';
  const size = all / call.ctx.int(native ? 'group' : 'num_groups');
  const [n, c] = x.shape;
  const inner = x.shape.slice(2).reduce((a, b) => a * b, 1);
  const groups = c / size;
  const [out, means, rstds] = [zeros(x.shape), zeros([n, groups]), zeros([n, groups])];
  for (let b = 0; b < n; b++)
    for (let k = 0; k < groups; k++) {
      const from = (b * c + k * size) * inner;
      const row = [...x.data.subarray(from, from + size * inner)];
      const m = mean(row);
      const rstd = 1 / Math.sqrt(mean(row.map((v) => (v - m) ** 2)) + call.ctx.number('eps'));
      means.data[b * groups + k] = m;
      rstds.data[b * groups + k] = rstd;
      row.forEach((v, i) => {
        const channel = k * size + Math.floor(i / inner);
        out.data[from + i] =
          (v - m) * rstd * (weight?.data[channel] ?? 1) + (bias?.data[channel] ?? 0);
      });
    }
  return [out, means, rstds].slice(0, call.ctx.outputs.length);
};

const groupNormBackward: Kernel = (call) => {
  const [g, x, means, rstds] = ['grad_out', 'input', 'mean', 'rstd'].map((name) =>
    input(call, name),
  );
  const weight = optional(call, 'weight');
  const size = call.global.int('C') / call.ctx.int('group');
  const [n, c] = x.shape;
  const inner = x.shape.slice(2).reduce((a, b) => a * b, 1);
  const [dx, dw, db] = [zeros(x.shape), zeros([c]), zeros([c])];
  for (let b = 0; b < n; b++)
    for (let k = 0; k < c / size; k++) {
      const from = (b * c + k * size) * inner;
      const [m, r] = [get(means, [b, k]), get(rstds, [b, k])];
      const index = Array.from({ length: size * inner }, (_, i) => i);
      const channel = (i: number): number => k * size + Math.floor(i / inner);
      const hat = (i: number): number => (x.data[from + i] - m) * r;
      const gw = (i: number): number => g.data[from + i] * (weight?.data[channel(i)] ?? 1);
      const a = mean(index.map((i) => gw(i) * hat(i)));
      const centre = mean(index.map(gw));
      for (const i of index) {
        dx.data[from + i] = r * (gw(i) - centre - hat(i) * a);
        dw.data[channel(i)] += g.data[from + i] * hat(i);
        db.data[channel(i)] += g.data[from + i];
      }
    }
  return [dx, dw, db].map((v, k) => (call.ctx.outputs[k] === null ? null : v));
};

/** Statistics per channel of a batch: mean and biased variance. */
function channelStatistics(x: NDArray): { mean: number[]; variance: number[]; count: number } {
  const values: number[][] = Array.from({ length: x.shape[1] }, () => []);
  build(x.shape, (at, flat) => values[at[1]].push(x.data[flat]));
  const means = values.map(mean);
  return {
    mean: means,
    variance: values.map((v, c) => mean(v.map((y) => (y - means[c]) ** 2))),
    count: values[0]?.length ?? 0,
  };
}

/** Some forms say in their name whether they use the statistics of the batch. */
function trains(call: LocalCall): boolean {
  if (call.ctx.target.includes('no_training')) return false;
  return (
    call.ctx.target.includes('no_stats') ||
    call.ctx.target.includes('with_update') ||
    call.ctx.bool('training')
  );
}

const batchNorm: Kernel = (call) => {
  const x = input(call, 'input');
  const [weight, bias] = [optional(call, 'weight'), optional(call, 'bias')];
  const [rm, rv] = [optional(call, 'running_mean'), optional(call, 'running_var')];
  const training = trains(call);
  const eps = call.ctx.number('eps');
  const momentum = call.ctx.number('momentum');
  const batch = channelStatistics(x);
  const m = training ? batch.mean : [...(rm?.data ?? [])];
  const v = training ? batch.variance : [...(rv?.data ?? [])];
  const out = build(x.shape, (at, flat) => {
    const c = at[1];
    return (
      ((x.data[flat] - m[c]) / Math.sqrt(v[c] + eps)) * (weight?.data[c] ?? 1) +
      (bias?.data[c] ?? 0)
    );
  });
  const vector = (values: readonly number[]): NDArray => ({
    shape: [values.length],
    data: Float64Array.from(values),
  });
  const moved = (old: NDArray | undefined, now: readonly number[]): NDArray =>
    vector(
      [...(old?.data ?? [])].map((o, c) => (training ? (1 - momentum) * o + momentum * now[c] : o)),
    );
  const unbiased = batch.variance.map((y) => (y * batch.count) / Math.max(1, batch.count - 1));
  const saved = training
    ? [vector(m), vector(v.map((y) => 1 / Math.sqrt(y + eps)))]
    : [vector([]), vector([])];
  const reserve = call.ctx.target.includes('with_update') ? [zeros([0])] : [];
  const running = [
    rm === undefined ? null : moved(rm, batch.mean),
    rv === undefined ? null : moved(rv, unbiased),
  ];
  return [out, ...saved, ...reserve, ...running].slice(0, call.ctx.outputs.length);
};

const batchNormBackward: Kernel = (call) => {
  const [g, x] = [input(call, 'grad_out'), input(call, 'input')];
  const weight = optional(call, 'weight');
  const train = call.ctx.bool('train');
  const channels = x.shape[1];
  const m = train ? input(call, 'save_mean').data : input(call, 'running_mean').data;
  const r = train
    ? input(call, 'save_invstd').data
    : input(call, 'running_var').data.map((v) => 1 / Math.sqrt(v + call.ctx.number('eps')));
  const [dw, db] = [zeros([channels]), zeros([channels])];
  let n = 0;
  build(x.shape, (at, flat) => {
    if (at[1] === 0) n++;
    dw.data[at[1]] += g.data[flat] * (x.data[flat] - m[at[1]]) * r[at[1]];
    db.data[at[1]] += g.data[flat];
    return 0;
  });
  const dx = build(x.shape, (at, flat) => {
    const c = at[1];
    const hat = (x.data[flat] - m[c]) * r[c];
    const centre = train ? (db.data[c] + hat * dw.data[c]) / n : 0;
    return (weight?.data[c] ?? 1) * r[c] * (g.data[flat] - centre);
  });
  return [dx, dw, db].map((v, k) => (call.ctx.outputs[k] === null ? null : v));
};

// ---- attention
// -----------------------------------------------------------------------------

/** Everything by batch index and heads; query head h reads key head h / (heads / key heads). */
interface Attention {
  readonly q: NDArray;
  readonly k: NDArray;
  readonly v: NDArray;
  readonly score: (b: number, h: number, i: number, j: number) => number;
  readonly scale: number;
  readonly keyHead: (h: number) => number;
}

function attention(call: LocalCall): Attention {
  const [q, k, v] = [input(call, 'query'), input(call, 'key'), input(call, 'value')];
  const mask = optional(call, 'attn_mask') ?? optional(call, 'attn_bias');
  const channels = call.global.tensor('query')?.shape[3] ?? 1;
  const scale = call.ctx.optionalNumber('scale') ?? 1 / Math.sqrt(channels);
  const causal = call.ctx.bool('is_causal');
  const [heads, keyHeads] = ['query', 'key'].map((name) => call.global.tensor(name)?.shape[1] ?? 1);
  const [, head, row] = call.inputStarts[call.ctx.indexOf('query')];
  const [, firstKeyHead, column] = call.inputStarts[call.ctx.indexOf('key')];
  const keyHead = (h: number): number => Math.floor(((h + head) * keyHeads) / heads) - firstKeyHead;
  const score = (b: number, h: number, i: number, j: number): number => {
    if (causal && j + column > i + row) return -Infinity;
    let s = 0;
    for (let c = 0; c < q.shape[3]; c++) s += get(q, [b, h, i, c]) * get(k, [b, keyHead(h), j, c]);
    return s * scale + (mask === undefined ? 0 : getBroadcast(mask, [b, h, i, j]));
  };
  return { q, k, v, score, scale, keyHead };
}

function forwardKernel(call: LocalCall): (NDArray | null)[] {
  const { q, k, v, score, keyHead } = attention(call);
  const [B, H, Sq] = q.shape;
  const lse = build([B, H, Sq], ([b, h, i]) => {
    const row = Array.from({ length: k.shape[2] }, (_, j) => score(b, h, i, j));
    const top = Math.max(...row);
    return top + Math.log(row.reduce((a, s) => a + Math.exp(s - top), 0));
  });
  const out = build([B, H, Sq, v.shape[3]], ([b, h, i, c]) => {
    let sum = 0;
    for (let j = 0; j < k.shape[2]; j++)
      sum += Math.exp(score(b, h, i, j) - get(lse, [b, h, i])) * get(v, [b, keyHead(h), j, c]);
    return sum;
  });
  return [out, lse];
}

/** Random states have no value here; a logsumexp that is padded or not asked for is left out. */
const attentionForward: Kernel = (call) => {
  const [out, lse] = forwardKernel(call);
  const wanted = call.ctx.outputs[1]?.shape.join() === lse?.shape.join();
  return call.ctx.outputs.map((meta, i) =>
    meta === null ? null : i === 0 ? out : i === 1 && wanted ? lse : null,
  );
};

const attentionBackward: Kernel = (call) => {
  const g = optional(call, 'grad_out') ?? input(call, 'grad_out_');
  const [out, lse] = [input(call, 'out'), input(call, 'logsumexp')];
  const { q, k, v, score, scale, keyHead } = attention(call);
  const [B, H, Sq, D] = q.shape;
  const E = v.shape[3];
  const [dq, dk, dv] = [zeros(q.shape), zeros(k.shape), zeros(v.shape)];
  const mask = call.ctx.target.includes('efficient') ? optional(call, 'attn_bias') : undefined;
  const dmask = mask === undefined ? null : zeros(mask.shape);
  const add = (x: NDArray, at: readonly number[], value: number): void => {
    x.data[flatIndex(x.shape, at)] += value;
  };
  build([B, H, Sq, k.shape[2]], ([b, h, i, j]) => {
    const p = Math.exp(score(b, h, i, j) - get(lse, [b, h, i]));
    const kh = keyHead(h);
    let dp = 0;
    for (let c = 0; c < E; c++) {
      const gc = get(g, [b, h, i, c]);
      dp += gc * (get(v, [b, kh, j, c]) - get(out, [b, h, i, c]));
      add(dv, [b, kh, j, c], p * gc);
    }
    const ds = p * dp;
    for (let c = 0; c < D; c++) {
      add(dq, [b, h, i, c], ds * scale * get(k, [b, kh, j, c]));
      add(dk, [b, kh, j, c], ds * scale * get(q, [b, h, i, c]));
    }
    if (dmask !== null)
      add(
        dmask,
        dmask.shape.map((n, d) => (n === 1 ? 0 : [b, h, i, j][d + 4 - dmask.shape.length])),
        ds,
      );
    return 0;
  });
  return [dq, dk, dv, dmask]
    .slice(0, call.ctx.outputs.length)
    .map((x, i) => (call.ctx.outputs[i] === null ? null : x));
};

/** Kernels of normalisations and attention by name. */
export const normKernels: Readonly<Record<string, Kernel>> = {
  'aten.native_layer_norm.default': rowNorm(true),
  'aten.layer_norm.default': rowNorm(true),
  'aten._fused_rms_norm.default': rowNorm(false),
  'aten.rms_norm.default': rowNorm(false),
  'aten.native_layer_norm_backward.default': rowNormBackward(true),
  'aten._fused_rms_norm_backward.default': rowNormBackward(false),
  'aten.native_group_norm.default': groupNorm,
  'aten.group_norm.default': groupNorm,
  'aten.native_group_norm_backward.default': groupNormBackward,
  'aten.batch_norm.default': batchNorm,
  'aten.native_batch_norm.default': batchNorm,
  'aten._native_batch_norm_legit.default': batchNorm,
  'aten._native_batch_norm_legit.no_stats': batchNorm,
  'aten._native_batch_norm_legit_no_training.default': batchNorm,
  'aten._batch_norm_with_update_functional.default': batchNorm,
  'aten._native_batch_norm_legit_functional.default': batchNorm,
  'aten.native_batch_norm_backward.default': batchNormBackward,
  'aten.scaled_dot_product_attention.default': attentionForward,
  'aten._scaled_dot_product_flash_attention_for_cpu.default': attentionForward,
  'aten._scaled_dot_product_flash_attention.default': attentionForward,
  'aten._scaled_dot_product_efficient_attention.default': attentionForward,
  'aten._scaled_dot_product_cudnn_attention.default': attentionForward,
  'aten._scaled_dot_product_flash_attention_for_cpu_backward.default': attentionBackward,
  'aten._scaled_dot_product_flash_attention_backward.default': attentionBackward,
  'aten._scaled_dot_product_efficient_attention_backward.default': attentionBackward,
  'aten._scaled_dot_product_cudnn_attention_backward.default': attentionBackward,
};

/** Real out and logsumexp for a backward call, whose rules hold only for those. */
export { forwardKernel };
