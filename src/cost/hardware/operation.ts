/**
 * The cost of operating a cluster in addition to time: the price of a device-hour, watts, failures.
 * The figures are those that a cluster file (its field `operation`) or a node design states;
 * nothing is assumed here.
 */

import * as z from 'zod';

import { defined } from '../../defined.ts';
import type { AcceleratorFacts, NodeFacts } from './facts.ts';

/** An amount of money with its currency, such as 2.5 USD. */
export interface Price {
  readonly amount: number;
  /** Three letters, as ISO 4217 has them. */
  readonly currency: string;
}

/** The facts that a cluster states about its operation. */
export interface Operation {
  /** The price of one device for one hour. */
  readonly pricePerDeviceHour?: Price | undefined;
  /** Watts of one board at work. */
  readonly deviceWatts?: number | undefined;
  /** Watts of a host or rack without its boards. */
  readonly hostWatts?: number | undefined;
  /** Power of the site over that of its hosts. */
  readonly pue?: number | undefined;
  /** Grams of CO2 equivalent for a kilowatt-hour of the site's supply. */
  readonly gramsCarbonPerKilowattHour?: number | undefined;
  /** Hours of one device between two failures that stop the job. */
  readonly deviceHoursBetweenFailures?: number | undefined;
  readonly checkpointWriteSeconds?: number | undefined;
  /** From a failure until the job computes again. */
  readonly restartSeconds?: number | undefined;
}

const PRICE = /^(\d{1,9}(?:\.\d{1,6})?)([kMB]?)\s?([A-Z]{3})$/;
const THOUSANDS: Readonly<Record<string, number>> = { k: 1e3, M: 1e6, B: 1e9 };
const DOLLARS = /^\$\s?(?=\d)(.*)$/;

/** A price as people write it, such as 2.5USD, $2.5 or $2M; undefined for a text that is none. */
export function parsePrice(text: string): Price | undefined {
  const match = PRICE.exec(text.trim().replace(DOLLARS, '$1USD'));
  return match === null || Number(match[1]) === 0
    ? undefined
    : { amount: Number(match[1]) * (THOUSANDS[match[2]] ?? 1), currency: match[3] };
}

const priceSchema = z.union(
  [
    z.strictObject({
      amount: z.number().positive().max(1e9),
      currency: z.string().regex(/^[A-Z]{3}$/),
    }),
    z.string().transform((text, context): Price => {
      const price = parsePrice(text);
      if (price !== undefined) return price;
      context.addIssue({ code: 'custom', message: 'no price' });
      return z.NEVER;
    }),
  ],
  {
    error: ({ input }) =>
      `found ${JSON.stringify(input)}, wanted an amount with its currency, of one device for ` +
      'one hour: write "2.5USD"',
  },
);

const watts = z.number().positive().max(1e9);

/** The field `operation` of a cluster file. @internal */
export const operationSchema = z.strictObject({
  pricePerDeviceHour: priceSchema.optional(),
  deviceWatts: watts.optional(),
  hostWatts: z.number().nonnegative().max(1e9).optional(),
  pue: z.number().min(1).max(10).optional(),
  gramsCarbonPerKilowattHour: z.number().nonnegative().max(1e4).optional(),
  deviceHoursBetweenFailures: z.number().positive().max(1e12).optional(),
  checkpointWriteSeconds: z.number().positive().max(1e6).optional(),
  restartSeconds: z.number().nonnegative().max(1e7).optional(),
});

/**
 * The operation of a node design: the rated power of the board, and the part of the system's rated
 * power that is left for the rest of the host.
 */
export function operationOfNode(node: NodeFacts, accelerator: AcceleratorFacts): Operation {
  const { tdp_W: deviceWatts } = accelerator;
  const { system_W: systemWatts } = node;
  const boards = (deviceWatts ?? 0) * (node.nvlink_domain ?? node.accelerators);
  return {
    ...defined({ deviceWatts }),
    ...(systemWatts === undefined || deviceWatts === undefined || systemWatts <= boards
      ? {}
      : { hostWatts: systemWatts - boards }),
  };
}
