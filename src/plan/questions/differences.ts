/** Finds where two JSON values differ: a plan as written, and as it follows from its request. */

/** A field that is not what follows. */
export interface PlanDifference {
  /** JSON path in `plan.json`, or behind `pipeline.json ` in that file. */
  readonly path: string;
  readonly stated: unknown;
  readonly follows: unknown;
}

/**
 * Relative difference of two numbers that are called equal: libraries of other machines round
 * otherwise.
 */
export const ROUNDING = 1e-9;

/** Walks two JSON values and notes where they differ. */
export class Comparison {
  readonly differences: PlanDifference[] = [];
  fields = 0;

  differs(path: string, stated: unknown, follows: unknown): void {
    this.differences.push({ path, stated: stated ?? null, follows: follows ?? null });
  }

  /** A field that may claim less than follows. */
  claim(path: string, stated: unknown, follows: unknown, isTooMuch: boolean): void {
    this.fields++;
    if (isTooMuch) this.differs(path, stated, follows);
  }

  /** Holds a field, or all that is in it, to what follows. */
  value(path: string, stated: unknown, follows: unknown): void {
    if (Array.isArray(stated) && Array.isArray(follows)) {
      if (stated.length !== follows.length)
        this.differs(path, `${stated.length} entries`, `${follows.length} entries`);
      else stated.forEach((item, k) => this.value(`${path}[${k}]`, item, follows[k]));
    } else if (isRecord(stated) && isRecord(follows)) {
      for (const key of new Set([...Object.keys(follows), ...Object.keys(stated)]))
        this.value(`${path}.${key}`, stated[key], follows[key]);
    } else {
      this.fields++;
      if (!same(stated, follows)) this.differs(path, stated, follows);
    }
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function same(a: unknown, b: unknown): boolean {
  if (typeof a === 'number' && typeof b === 'number')
    return a === b || Math.abs(a - b) <= ROUNDING * Math.max(Math.abs(a), Math.abs(b));
  return a === b;
}

/** Tells whether a number is above another, whatever rounding says. */
export function isAbove(a: number, b: number): boolean {
  return a > b + ROUNDING * Math.max(Math.abs(a), Math.abs(b));
}

/** `$.objective.seconds: the plan says 1e-12, 0.00115 follows`. */
export function differenceText({ path, stated, follows }: PlanDifference): string {
  const text = (value: unknown): string => {
    const json = JSON.stringify(value);
    return json.length > 120 ? `${json.slice(0, 117)}...` : json;
  };
  return (
    `${path}: the plan says ${text(stated)}, from its graph, request and certificate follows ` +
    `${text(follows)}`
  );
}
