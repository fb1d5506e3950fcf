/** A finisher's program in HiGHS. */
import type { Highs, Model as HighsModel } from 'highs';
import type { FinishProgram } from './finish-program.ts';

/** Hands a program to HiGHS, with or without its integrality. The caller disposes of the model. */
export function openProgram(highs: Highs, p: FinishProgram, whole: boolean): HighsModel {
  const { integer, continuous } = highs.constants.variableType;
  const rows = p.rowLower.length;
  return highs.createModel({
    numCols: p.columns,
    numRows: rows,
    colCost: p.cost,
    colLower: new Float64Array(p.columns),
    colUpper: p.upper,
    rowLower: p.rowLower,
    rowUpper: p.rowUpper,
    matrix: {
      format: 'csr',
      numRows: rows,
      numCols: p.columns,
      starts: p.starts,
      indices: p.indices,
      values: p.values,
    },
    ...(whole ? { integrality: Array.from(p.integer, (flag) => (flag === 1 ? integer : continuous)) } : {}),
  });
}
