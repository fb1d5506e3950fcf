/**
 * Pipeline schedules: the order in which every device runs the forward and backward passes of its
 * microbatches. An order says nothing of time; `play.ts` runs it. Sources: GPipe
 * (arXiv:1811.06965), 1F1B (PipeDream-Flush, arXiv:2006.09503), interleaved (Megatron-LM,
 * arXiv:2104.04473), zero bubble (arXiv:2401.10241).
 */

import { ShardwrightError, suggestion } from '../../errors.ts';

/** Pipeline schedules by name, as PyTorch and Megatron-LM have them. */
export const PIPELINE_SCHEDULES = ['gpipe', '1f1b', 'interleaved', 'zb-h1', 'zb-h2'] as const;
/** The name of a pipeline schedule. */
export type PipelineSchedule = (typeof PIPELINE_SCHEDULES)[number];

/**
 * `F` forward; `B` backward, of the input only where the schedule has `W`; `W` gradients of the
 * weights.
 */
export type PassKind = 'F' | 'B' | 'W';

/** One pass of one microbatch through one chunk of layers. */
export interface Pass {
  readonly kind: PassKind;
  readonly microbatch: number;
  /** Which of the device's chunks; device i of p holds the stages i, p + i, 2 p + i ... */
  readonly chunk: number;
}

/** Devices, microbatches and chunks of a pipeline. */
export interface PipelineShape {
  /** Devices (or groups of them) in the pipeline, p. */
  readonly devices: number;
  /** Microbatches of a step, m. */
  readonly microbatches: number;
  /** Chunks of a device, v; above 1 for `interleaved` only. Default 1. */
  readonly chunks?: number;
}

/** Most passes that a schedule may have; a slip of the keyboard should not fill the memory. */
const MAX_PASSES = 2 ** 22;

/** Names of PyTorch's `torch.distributed.pipelining` for the schedules that it shares with us. */
const TORCH_NAMES: Readonly<Record<string, PipelineSchedule>> = {
  ScheduleGPipe: 'gpipe',
  Schedule1F1B: '1f1b',
  ScheduleInterleaved1F1B: 'interleaved',
};

/** Schedule by our name or by PyTorch's class. @throws E_USAGE with the nearest names */
export function parsePipelineSchedule(name: string): PipelineSchedule {
  const found =
    PIPELINE_SCHEDULES.find((s) => s === name) ??
    (Object.hasOwn(TORCH_NAMES, name) ? TORCH_NAMES[name] : undefined);
  if (found !== undefined) return found;
  throw new ShardwrightError('E_USAGE', `unknown pipeline schedule '${name}'`, {
    hint: suggestion(name, [...PIPELINE_SCHEDULES, ...Object.keys(TORCH_NAMES)], 'schedules'),
  });
}

/** Tells whether the gradients of the weights are passes of their own. */
export function splitsBackward(schedule: PipelineSchedule): boolean {
  return schedule === 'zb-h1' || schedule === 'zb-h2';
}

/**
 * The passes of every device in its order.
 *
 * @throws E_USAGE for sizes below 1, chunks of a schedule that has none, and interleaving of
 *   microbatches that do not fill rounds
 */
export function passOrder(schedule: PipelineSchedule, shape: PipelineShape): Pass[][] {
  const { devices: p, microbatches: m, chunks: v = 1 } = shape;
  for (const [what, n] of [
    ['devices', p],
    ['microbatches', m],
    ['chunks', v],
  ] as const)
    if (!Number.isSafeInteger(n) || n < 1)
      throw new ShardwrightError(
        'E_USAGE',
        `a pipeline of ${n} ${what}: expected a whole number of at least 1`,
      );
  if (3 * p * m * v > MAX_PASSES)
    throw new ShardwrightError(
      'E_LIMIT',
      `${p} devices x ${m} microbatches x ${v} chunks are more than ${MAX_PASSES} passes`,
    );
  if (v > 1 && schedule !== 'interleaved')
    throw new ShardwrightError('E_USAGE', `schedule ${schedule} has one chunk a device, not ${v}`, {
      hint: 'use interleaved',
    });
  if (schedule === 'interleaved' && m % p !== 0)
    throw new ShardwrightError(
      'E_USAGE',
      `interleaved: ${m} microbatches mod ${p} devices is ${m % p}, expected 0`,
      {
        hint: `use ${Math.max(1, Math.floor(m / p)) * p} or ${Math.ceil(m / p) * p} microbatches`,
      },
    );
  return Array.from({ length: p }, (_, i) => {
    switch (schedule) {
      case 'gpipe':
        return [...passes('F', m), ...passes('B', m)];
      case '1f1b':
        return interleave(p, m, 1, Math.min(m, p - 1 - i));
      case 'interleaved':
        return interleave(p, m, v, Math.min(m * v, 2 * (p - 1 - i) + (v - 1) * p));
      case 'zb-h1':
        return zeroBubble(m, p - i, p);
      case 'zb-h2':
        return zeroBubble(m, 2 * (p - i) - 1, 2 * p - 1);
    }
  });
}

function passes(kind: PassKind, m: number): Pass[] {
  return Array.from({ length: m }, (_, microbatch) => ({ kind, microbatch, chunk: 0 }));
}

/**
 * Some forwards first, then one forward and one backward in turn, then the backwards that are left.
 */
function interleave(p: number, m: number, v: number, first: number): Pass[] {
  const total = m * v;
  // Rounds of p microbatches go through chunk after chunk; backward takes the last chunk first.
  const at = (kind: PassKind, k: number): Pass => {
    const chunk = v === 1 ? 0 : Math.floor((k % (p * v)) / p);
    const microbatch = v === 1 ? k : Math.floor(k / (p * v)) * p + (k % p);
    return { kind, microbatch, chunk: kind === 'F' ? chunk : v - 1 - chunk };
  };
  const out: Pass[] = [];
  for (let k = 0; k < first; k++) out.push(at('F', k));
  for (let k = first; k < total; k++) out.push(at('F', k), at('B', k - first));
  for (let k = total - first; k < total; k++) out.push(at('B', k));
  return out;
}

/**
 * Zero bubble: some forwards first; then a backward, and before each further forward one W whenever
 * as many microbatches as the limit are held; when the forwards are exhausted one W after each B;
 * then the W that are left.
 */
function zeroBubble(m: number, first: number, limit: number): Pass[] {
  const out: Pass[] = [];
  let [f, b, w] = [0, 0, 0];
  const next = (kind: PassKind): void => {
    out.push({ kind, microbatch: kind === 'F' ? f++ : kind === 'B' ? b++ : w++, chunk: 0 });
  };
  while (f < Math.min(first, m)) next('F');
  while (b < m) {
    next('B');
    if (f < m) {
      if (f - w === limit) next('W');
      next('F');
    } else next('W');
  }
  while (w < m) next('W');
  return out;
}
