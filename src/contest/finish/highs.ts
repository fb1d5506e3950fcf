/** A finisher's program in HiGHS, and the rows that join it lazily. */
import type { Highs, Model as HighsModel } from 'highs';

import { usageOf } from '../bound/trws.ts';
import type { Model } from '../model/model.ts';
import type { FinishProgram } from './finish-program.ts';

/** Windows of rows; each may add the most exceeded one after a run. */
const WINDOWS = 48;
const MOST_FRESH = 25;

/** Hands a program to HiGHS, with or without its integrality. The caller disposes of the model. */
export function openProgram(highs: Highs, p: FinishProgram, whole: boolean): HighsModel {
  const { integer, continuous } = highs.constants.variableType;
  return highs.createModel({
    numCols: p.columns,
    numRows: p.rows,
    colCost: p.cost,
    colLower: p.lower,
    colUpper: p.upper,
    rowLower: p.rowLower,
    rowUpper: p.rowUpper,
    matrix: {
      format: 'csr',
      numRows: p.rows,
      numCols: p.columns,
      starts: p.starts,
      indices: p.indices,
      values: p.values,
    },
    ...(whole
      ? { integrality: Array.from(p.integer, (flag) => (flag === 1 ? integer : continuous)) }
      : {}),
  });
}

/** The most exceeded row of every window, worst first, without those that are in the program. */
export function brokenRows(model: Model, choice: Int32Array, known: readonly number[]): number[] {
  const usage = usageOf(model, choice);
  const inProgram = new Set(known);
  const worst: { readonly t: number; readonly excess: number }[] = [];
  for (let w = 0; w < WINDOWS; w++) {
    let best = -1;
    let excess = 0;
    for (
      let t = Math.floor((w * model.rows) / WINDOWS);
      t < Math.floor(((w + 1) * model.rows) / WINDOWS);
      t++
    ) {
      const over = usage[t] - model.capacity[t];
      if (over > excess && !inProgram.has(t)) [best, excess] = [t, over];
    }
    if (best >= 0) worst.push({ t: best, excess });
  }
  return worst
    .sort((x, y) => y.excess - x.excess || x.t - y.t)
    .slice(0, MOST_FRESH)
    .map(({ t }) => t);
}
