/**
 * Computes the cost of a training run from the seconds of a step, the hosts that it holds, the
 * operation of the cluster and the tokens of the run: wall time with failures, device-hours, money,
 * energy, and tokens for each of them.
 *
 * Failures come at random, as often as there are devices. A job that writes a checkpoint every `t`
 * seconds of work needs, for each of them, `M e^(R/M) (e^((t + w)/M) - 1)` seconds (J. T. Daly, "A
 * higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22, 2006,
 * equation 13): `M` seconds between failures, `w` to write, `R` to restart. The interval is Daly's
 * estimate of the best, which is Young's `sqrt(2 w M)` to first order.
 */

import type { Operation, Price } from '../hardware/operation.ts';
import type { Allocation } from '../hardware/topology.ts';

/** Eight of ten measured values lie between these. */
export type Band = readonly [p10: number, p90: number];

/** A run as it is asked about. */
export interface RunQuestion {
  readonly devices: number;
  readonly stepSeconds: number;
  /** The range of measured steps; absent or null where none is known. */
  readonly stepBand?: Band | null | undefined;
  readonly tokensPerStep: number;
  /** Tokens of the whole run. */
  readonly tokens: number;
  readonly allocation: Allocation;
  readonly operation: Operation;
}

/** The cost of a run. */
export interface RunCost {
  readonly tokens: number;
  readonly steps: number;
  /** Seconds of the steps alone. */
  readonly stepsSeconds: number;
  /** With checkpoints, lost work and restarts. */
  readonly wallSeconds: number;
  /** The range of it, as measured steps have it; null where no runs of this kind were measured. */
  readonly wallSecondsBand?: Band | null;
  /** Share of the wall time that the steps are, 0..1. */
  readonly goodput: number;
  /** Hours of all devices that are held, with idle ones of their trays and hosts. */
  readonly deviceHours: number;
  /** Absent where no price is known. */
  readonly price?: Price;
  /** The range of its amount; absent where no price is known. */
  readonly priceBand?: Band | null;
  /** Absent where no rated power is known. */
  readonly energyMegawattHours?: number;
  /** Power of all that is held, at the meter of the site; absent where no rated power is known. */
  readonly kilowatts?: number;
  /** Tonnes of CO2 equivalent; absent where the supply or the power is not known. */
  readonly carbonTonnes?: number;
  readonly tokensPerSecond: number;
  /** Tokens for one unit of the currency; absent where no price is known. */
  readonly tokensPerCurrency?: number;
  readonly betweenFailuresSeconds: number;
  readonly checkpointEverySeconds: number;
  readonly checkpointWriteSeconds: number;
  readonly restartSeconds: number;
  /** The assumptions for figures that are not known, one sentence each. */
  readonly assumptions: readonly string[];
}

/**
 * Hours of one device between failures: 419 unexpected interruptions in 54 days on 16,384 H100s
 * (arXiv:2407.21783, section 3.3.4).
 */
const HOURS_BETWEEN_FAILURES = (16_384 * 54 * 24) / 419;
const CHECKPOINT_WRITE_SECONDS = 60;
const RESTART_SECONDS = 600;
const HOUR = 3600;

/** Work between two checkpoints that wastes least, by Daly's estimate. */
export function checkpointIntervalSeconds(
  betweenFailuresSeconds: number,
  writeSeconds: number,
): number {
  const share = writeSeconds / (2 * betweenFailuresSeconds);
  if (share >= 1) return betweenFailuresSeconds;
  const first = Math.sqrt(2 * writeSeconds * betweenFailuresSeconds);
  return first * (1 + Math.sqrt(share) / 3 + share / 9) - writeSeconds;
}

/** Share of the wall time that is work which lasts, 0..1. */
export function goodput(
  everySeconds: number,
  betweenFailuresSeconds: number,
  writeSeconds: number,
  restartSeconds: number,
): number {
  const m = betweenFailuresSeconds;
  return (
    everySeconds /
    (m * Math.exp(restartSeconds / m) * Math.expm1((everySeconds + writeSeconds) / m))
  );
}

/** Computes the cost of a run of so many tokens. */
export function runCost({
  devices,
  stepSeconds,
  stepBand = null,
  tokensPerStep,
  tokens,
  allocation,
  operation,
}: RunQuestion): RunCost {
  const assumptions: string[] = [];
  const { hoursBetweenFailures, checkpointWriteSeconds, restartSeconds } = failuresOf(
    operation,
    assumptions,
  );
  const betweenFailuresSeconds = (hoursBetweenFailures * HOUR) / devices;
  const checkpointEverySeconds = checkpointIntervalSeconds(
    betweenFailuresSeconds,
    checkpointWriteSeconds,
  );
  const share = goodput(
    checkpointEverySeconds,
    betweenFailuresSeconds,
    checkpointWriteSeconds,
    restartSeconds,
  );
  const steps = Math.ceil(tokens / tokensPerStep);
  const stepsSeconds = steps * stepSeconds;
  const wallSeconds = stepsSeconds / share;
  const deviceHours = (allocation.heldDevices * wallSeconds) / HOUR;
  const { pricePerDeviceHour: each } = operation;
  // All of a run grows with its steps.
  const bandOf = (value: number): Band | null =>
    stepBand === null
      ? null
      : [(value * stepBand[0]) / stepSeconds, (value * stepBand[1]) / stepSeconds];
  const watts = allocatedWatts(allocation, operation, assumptions);
  return {
    tokens,
    steps,
    stepsSeconds,
    wallSeconds,
    wallSecondsBand: bandOf(wallSeconds),
    goodput: share,
    deviceHours,
    ...(each === undefined ? {} : priceOf(each, { deviceHours, tokens }, bandOf)),
    ...(watts === undefined ? {} : energyOf(watts, wallSeconds, operation)),
    tokensPerSecond: tokens / wallSeconds,
    betweenFailuresSeconds,
    checkpointEverySeconds,
    checkpointWriteSeconds,
    restartSeconds,
    assumptions,
  };
}

/** Energy, power and carbon of a run at so many watts. */
function energyOf(
  watts: number,
  wallSeconds: number,
  { gramsCarbonPerKilowattHour: grams }: Operation,
): Pick<RunCost, 'energyMegawattHours' | 'kilowatts' | 'carbonTonnes'> {
  const energyMegawattHours = (watts * wallSeconds) / HOUR / 1e6;
  return {
    energyMegawattHours,
    kilowatts: watts / 1e3,
    // Grams for a kilowatt-hour are kilograms for a megawatt-hour.
    ...(grams === undefined ? {} : { carbonTonnes: (energyMegawattHours * grams) / 1e3 }),
  };
}

/** The price of a run; nothing if the price of a device is not known. */
function priceOf(
  each: Price,
  { deviceHours, tokens }: Pick<RunCost, 'deviceHours' | 'tokens'>,
  bandOf: (value: number) => Band | null,
): Pick<RunCost, 'price' | 'priceBand' | 'tokensPerCurrency'> {
  const amount = each.amount * deviceHours;
  return {
    price: { amount, currency: each.currency },
    priceBand: bandOf(amount),
    tokensPerCurrency: tokens / amount,
  };
}

/**
 * How often a device fails, and what checkpoints and restarts take; what is not known is assumed.
 */
function failuresOf(
  { deviceHoursBetweenFailures, checkpointWriteSeconds, restartSeconds }: Operation,
  assumptions: string[],
): {
  readonly hoursBetweenFailures: number;
  readonly checkpointWriteSeconds: number;
  readonly restartSeconds: number;
} {
  const assumed = (value: number | undefined, other: number, text: string): number => {
    if (value === undefined) assumptions.push(text);
    return value ?? other;
  };
  return {
    hoursBetweenFailures: assumed(
      deviceHoursBetweenFailures,
      HOURS_BETWEEN_FAILURES,
      `a device fails every ${Math.round(HOURS_BETWEEN_FAILURES)} hours, as in the training of ` +
        'Llama 3 (arXiv:2407.21783)',
    ),
    checkpointWriteSeconds: assumed(
      checkpointWriteSeconds,
      CHECKPOINT_WRITE_SECONDS,
      `a checkpoint stops the job for ${CHECKPOINT_WRITE_SECONDS} s`,
    ),
    restartSeconds: assumed(
      restartSeconds,
      RESTART_SECONDS,
      `a restart takes ${RESTART_SECONDS} s`,
    ),
  };
}

/** Watts of the trays and hosts that are held, with their part of the host. */
function allocatedWatts(
  allocation: Allocation,
  { deviceWatts, hostWatts, pue }: Operation,
  assumptions: string[],
): number | undefined {
  if (deviceWatts === undefined) return undefined;
  const boards = allocation.heldDevices * deviceWatts;
  const besides = (allocation.heldDevices / allocation.devicesPerHost) * (hostWatts ?? 0);
  const parts = [`energy is that of boards at their rated ${deviceWatts} W`];
  parts.push(
    hostWatts === undefined
      ? 'hosts besides them are not counted'
      : `${Math.round(hostWatts)} W a host besides`,
  );
  if (pue === undefined) parts.push('nothing for the site (operation.pue)');
  assumptions.push(parts.join(', '));
  return (boards + besides) * (pue ?? 1);
}
