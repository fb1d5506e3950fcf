import { gunzipSync, gzipSync, strFromU8, strToU8 } from 'fflate';

import { flat, type NDArray } from '../../src/ndarray/array.ts';
import { decode, type RecordedArray } from '../ops/support/kernel-record.ts';
import { type GradientSample, gradientsOf } from './vjp-samples.ts';

/** What PyTorch answers: gradients in full. */
export type TorchGradients =
  { readonly refused: string } | { readonly gradients: readonly (RecordedArray | null)[] };

/**
 * What is kept of it: of each gradient three numbers that a wrong element would change (sum, sum of
 * squares, sum weighted by the cosine of the position); null for no gradient, `refused` where
 * PyTorch has no answer.
 */
export type KeptGradients = 'refused' | readonly (readonly [number, number, number] | null)[];

export interface GradientRecording {
  readonly torch: string;
  /** By the text of the call. */
  readonly calls: Readonly<Record<string, KeptGradients>>;
}

export function readGradients(bytes: Uint8Array): GradientRecording {
  return JSON.parse(strFromU8(gunzipSync(bytes))) as GradientRecording;
}

export function writeGradients(recording: GradientRecording): Uint8Array {
  return gzipSync(strToU8(JSON.stringify(recording)), { level: 9, mtime: 0 });
}

/**
 * Calls that PyTorch on a CPU does not run or does not differentiate: central differences alone
 * judge those.
 */
const NOT_IN_TORCH: readonly (readonly [RegExp, string])[] = [
  [/^(asinh|acosh|atanh)_\./, 'no derivative of the in-place form'],
  [/^leaky_relu_\..*-0\.5\)$/, 'the in-place form overwrites what its derivative needs'],
  [/^prims\.convert_element_type\./, 'no derivative'],
  [/^(float|double|half|bfloat16)\.default/, 'a method of tensors, no operator'],
  [/^copy\.default/, 'no derivative'],
  [/^_grouped_mm\(/, 'no float64'],
  [
    /^scatter\.src\(x\[9\]|^scatter\.src\(x\[5,9\], 1, index9\[5,1\], x\[5,3\]|^scatter_add\(x\[9,5\]/,
    'no source larger than the index',
  ],
  [
    /^(_scaled_dot_product_(flash|efficient|cudnn)_attention|torch_attn\._varlen_attn\.default)\(/,
    'kernels of GPUs',
  ],
];

export function notInTorch(s: GradientSample): boolean {
  return NOT_IN_TORCH.some(([pattern]) => pattern.test(s.text));
}

/** PyTorch multiplies by a sixth that it rounded to float32. */
const tolerance = (s: GradientSample): number =>
  s.target === 'aten.hardsigmoid.default' ? 1e-7 : 1e-9;

/** Differences from what PyTorch gave. No gradient, on either side, is zero. */
export function wrongAgainst(s: GradientSample, answer: TorchGradients): string[] {
  if ('refused' in answer)
    return notInTorch(s) ? [] : [`${s.text}: PyTorch refuses: ${answer.refused}`];
  const ours = gradientsOf(s);
  return s.wanted.flatMap((name, k) => {
    const want = answer.gradients[k] ?? null;
    const [a, b] = [
      valuesOf(s, name, ours[k]),
      valuesOf(s, name, want === null ? null : decode(want)),
    ];
    if (a.length !== b.length)
      return [`${s.text}: d ${name} has ${a.length} elements, PyTorch has ${b.length}`];
    for (let i = 0; i < a.length; i++)
      if (!(Math.abs(a[i] - b[i]) <= tolerance(s) * (1 + Math.abs(b[i]))))
        return [`${s.text}: d ${name}[${i}] is ${a[i]}, PyTorch has ${b[i]}`];
    return [];
  });
}

function valuesOf(s: GradientSample, name: string, x: NDArray | null): Float64Array {
  return x === null ? new Float64Array(s.arrays.get(name)?.size ?? 0) : Float64Array.from(flat(x));
}

function summary(values: Float64Array): [number, number, number] {
  const out: [number, number, number] = [0, 0, 0];
  values.forEach((v, i) => {
    out[0] += v;
    out[1] += v * v;
    out[2] += v * Math.cos(i);
  });
  return out;
}

/** What is kept of an answer. */
export function kept(answer: TorchGradients): KeptGradients {
  if ('refused' in answer) return 'refused';
  return answer.gradients.map((g) =>
    g === null ? null : summary(Float64Array.from(flat(decode(g)))),
  );
}

/** Differences from what was kept; a sum of many values is measured against the values. */
export function wrongAgainstKept(s: GradientSample, recorded: KeptGradients | undefined): string[] {
  if (recorded === undefined) return [`${s.text}: not recorded`];
  if (recorded === 'refused') return notInTorch(s) ? [] : [`${s.text}: PyTorch refuses`];
  const ours = gradientsOf(s);
  return s.wanted.flatMap((name, k) => {
    const values = valuesOf(s, name, ours[k]);
    const want = recorded[k] ?? [0, 0, 0];
    const scale = Math.sqrt(want[1] * values.length) + 1;
    return summary(values).flatMap((v, i) => {
      const allowed = 10 * tolerance(s) * (i === 1 ? want[1] + 1 : scale);
      return Math.abs(v - want[i]) <= allowed
        ? []
        : [`${s.text}: number ${i} of d ${name} is ${v}, PyTorch has ${want[i]}`];
    });
  });
}
