/**
 * The form of measured kernels of one device: what `python -m shardwright.measure` and
 * `bench/calibrate.py` write, and what `shardwright doctor --calibration` reads off a trace. It is
 * a file of its own (`--calibration`) or the field `calibration` of a cluster file.
 */

import * as z from 'zod';

import { ShardwrightError } from '../../errors.ts';
import { parseJson } from '../../text/json.ts';

const seconds = z.number().positive().max(100);
const size = z.int().positive().max(1e9);

/** An argument of a measured call: a tensor, a dtype, a scalar, or a list. */
const plain = z.union([
  z.strictObject({
    dtype: z.string().max(10),
    shape: z.array(z.int().nonnegative().max(1e12)).max(16),
    turned: z.boolean().default(false),
  }),
  z.strictObject({ name: z.string().max(10) }),
  z.number(),
  z.boolean(),
  z.null(),
]);
const argument = z.union([plain, z.array(plain).max(1000)]);

/** Half of the samples lie in a range of so many medians. */
const spread = z.number().nonnegative().max(1000).optional();
/** A text without line breaks. */
const line = (most: number): z.ZodString =>
  z
    .string()
    .max(most)
    .regex(/^[^\n\r]*$/, 'one line');

/**
 * The field `calibration` of a cluster file, and what `--calibration` reads.
 *
 * @internal
 */
export const calibrationSchema = z.strictObject({
  version: z.literal(1),
  /** Device as its driver names it. */
  device: line(200),
  /** Software that measured, for the record. */
  software: z.string().max(500).default(''),
  /** When, as ISO 8601 has it. */
  date: line(40).optional(),
  /** Processes that measured together, one a device, and the hosts that they were on. */
  processes: z.int().positive().max(1e6).optional(),
  hosts: z.int().positive().max(1e6).optional(),
  /** Their mesh, `dp=2,tp=2`, and what carried their collectives. */
  mesh: line(200).optional(),
  backend: line(40).optional(),
  /** Threads of each process, where the device is a processor. */
  threads: z.int().positive().max(1e6).optional(),
  /**
   * A call is done when it returns, and so is a collective: nothing overlaps. Absent: a device is
   * told of calls, and works on its own.
   */
  synchronous: z.boolean().optional(),
  /** Bytes that the allocator keeps over those of the tensors that live at once, less 1. */
  allocatorShare: z.number().nonnegative().max(10).optional(),
  /** Notes on figures that were not measured or were far off, and on a busy machine. */
  notes: z.array(line(500)).max(1000).optional(),
  /** Products of [m, k] and [k, n] by unit (`bf16`, `fp8` ...), `bytes` read and written. */
  matmul: z
    .record(
      z.string(),
      z
        .array(
          z.strictObject({
            m: size,
            k: size,
            n: size,
            itemBytes: z.number().positive().max(16),
            seconds,
            spread,
          }),
        )
        .max(10_000),
    )
    .default({}),
  /**
   * Fused attention of [batch, heads, rows, channels] on itself, every score computed; the backward
   * is timed alone.
   */
  attention: z
    .array(
      z.strictObject({
        unit: z.string().default('bf16'),
        batch: size,
        heads: size,
        rows: size,
        channels: size,
        backward: z.boolean(),
        seconds,
        spread,
      }),
    )
    .max(10_000)
    .default([]),
  /** Copies: bytes read and written together. */
  memory: z
    .array(z.strictObject({ bytes: z.int().positive().max(1e12), seconds, spread }))
    .max(10_000)
    .default([]),
  /**
   * Calls of operators by what they count and what goes in and comes out: such a call has this
   * price.
   */
  calls: z
    .array(
      z.strictObject({
        op: line(200),
        /** Unit that multiplies, of those that count operations. */
        unit: z.string().max(20).default('fp32'),
        flops: z.number().nonnegative().max(1e18).default(0),
        bytes: z.int().positive().max(1e12),
        seconds,
        spread,
      }),
    )
    .max(10_000)
    .optional(),
  /**
   * Calls of models as they are, with their arguments: what prices are compared with
   * (`scripts/kernel-errors.ts`), never fitted.
   */
  kernels: z
    .array(
      z.strictObject({
        model: z.string().max(200),
        op: z.string().max(200),
        args: z.array(argument).max(100),
        kwargs: z.record(z.string(), argument).default({}),
        seconds,
      }),
    )
    .max(10_000)
    .default([]),
  /** Smallest kernels, launched one after another: seconds each. */
  launchSeconds: z.number().nonnegative().max(1).optional(),
  matmulLaunchSeconds: z.number().nonnegative().max(1).optional(),
});
/** Seconds of something, and half of its samples' range in parts of them. */
interface Timed {
  readonly seconds: number;
  readonly spread?: number | undefined;
}

/** A product of [m, k] and [k, n]. */
interface TimedProduct extends Timed {
  readonly m: number;
  readonly k: number;
  readonly n: number;
  readonly itemBytes: number;
}

/** Fused attention of [batch, heads, rows, channels] on itself. */
interface TimedAttention extends Timed {
  readonly unit: string;
  readonly batch: number;
  readonly heads: number;
  readonly rows: number;
  readonly channels: number;
  readonly backward: boolean;
}

/** A call of an operator by what it counts. */
interface TimedOperator extends Timed {
  readonly op: string;
  readonly unit: string;
  readonly flops: number;
  readonly bytes: number;
}

/** An argument of a measured call; a tensor may lie turned. */
type PlainArgument =
  | { readonly dtype: string; readonly shape: number[]; readonly turned: boolean }
  | { readonly name: string }
  | number
  | boolean
  | null;
type Argument = PlainArgument | PlainArgument[];

/** A call that was timed as it is. */
export interface MeasuredCall {
  readonly model: string;
  readonly op: string;
  readonly args: Argument[];
  readonly kwargs: Record<string, Argument>;
  readonly seconds: number;
}

/** A calibration file, as it is read; the schema says what each field is. */
export interface Calibration {
  readonly version: 1;
  readonly device: string;
  readonly software: string;
  readonly date?: string | undefined;
  readonly processes?: number | undefined;
  readonly hosts?: number | undefined;
  readonly mesh?: string | undefined;
  readonly backend?: string | undefined;
  readonly threads?: number | undefined;
  readonly synchronous?: boolean | undefined;
  readonly allocatorShare?: number | undefined;
  readonly notes?: string[] | undefined;
  readonly matmul: Record<string, TimedProduct[]>;
  readonly attention: TimedAttention[];
  readonly memory: (Timed & { readonly bytes: number })[];
  readonly calls?: TimedOperator[] | undefined;
  readonly kernels: MeasuredCall[];
  readonly launchSeconds?: number | undefined;
  readonly matmulLaunchSeconds?: number | undefined;
}

/** Characters of a calibration file that are read at most. */
const TEXT_LIMIT = 16 * 2 ** 20;

/** @throws E_CALIBRATION for a text that is not a calibration, with what does not fit */
export function parseCalibration(text: string): Calibration {
  if (text.length > TEXT_LIMIT)
    throw new ShardwrightError(
      'E_CALIBRATION',
      `the calibration has ${text.length} characters; at most ${TEXT_LIMIT} are read`,
    );
  const json = parseJson(text, {}, { what: 'the calibration', code: 'E_CALIBRATION' });
  const parsed = calibrationSchema.safeParse(json);
  if (!parsed.success)
    throw new ShardwrightError(
      'E_CALIBRATION',
      `the calibration does not fit: ${z.prettifyError(parsed.error)}`,
      {
        hint:
          'write it with `python -m shardwright.measure`, bench/calibrate.py or `shardwright ' +
          'doctor PLAN --run trace.json --calibration FILE`.',
      },
    );
  return parsed.data;
}
