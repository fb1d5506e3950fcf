/**
 * Sample calls of the built-in operators: what rules and kernels are tried with. Sizes are even on
 * 2 and 3 ranks (6, 9 on 3), uneven (5, 7) and 1; elementwise operators get theirs from the schema,
 * the others are written by family.
 */

import { ShardwrightError } from '../../errors.ts';
import { comparisonSamples } from '../aten/elementwise/comparison.ts';
import { complexSamples } from '../aten/elementwise/complex.ts';
import { embeddingBagSamples } from '../aten/movement/embedding-bag.ts';
import { gridSamples } from '../aten/movement/grid.ts';
import { scatterReduceSamples } from '../aten/movement/scatter-reduce.ts';
import { upsampleSamples } from '../aten/movement/upsample.ts';
import { einsumSamples } from '../aten/products/einsum.ts';
import { factorisationSamples } from '../aten/products/factorisation.ts';
import { fusedSamples } from '../aten/products/fused.ts';
import { linalgSamples } from '../aten/products/linalg.ts';
import { matrixFunctionSamples } from '../aten/products/matrix-functions.ts';
import { scaledMmSamples } from '../aten/products/scaled-mm.ts';
import { solutionSamples } from '../aten/products/solutions.ts';
import { poolSamples } from '../aten/reductions/pool.ts';
import { searchSamples } from '../aten/reductions/search.ts';
import { kernelOf } from '../kernels/table.ts';
import type { OperatorRecord } from '../record/record.ts';
import type { OperatorTable } from '../record/table.ts';
import { gpuAttention } from './attention.ts';
import { bindText, callOf, type CallText, parseCall } from './call-text.ts';
import { decomposed } from './decomposed.ts';
import { norms } from './norms.ts';
import { ELSEWHERE, pointwiseSamples } from './pointwise.ts';
import { products } from './products.ts';
import { reductions } from './reductions.ts';
import { ruleSamples } from './rules.ts';
import { shapes } from './shapes.ts';
import { stablehloPointwise, stablehloSamples } from './stablehlo.ts';

const IDENTITIES = ['detach', 'detach_', 'alias', 'lift_fresh'].map((name) => `${name}(x[6,5])`);

/** Samples of ATen and prims operators that PyTorch runs on a CPU. */
export function torchSamples(table: OperatorTable): CallText[] {
  return [
    ...table.records.filter((r) => isTorch(r.name)).flatMap(statedSamples),
    ...IDENTITIES,
    ...products,
    ...norms,
    ...reductions,
    ...shapes,
    ...decomposed,
    ...einsumSamples,
    ...searchSamples,
    ...linalgSamples,
    ...upsampleSamples,
    ...gridSamples,
    ...poolSamples,
    ...scaledMmSamples,
    ...scatterReduceSamples,
    ...factorisationSamples,
    ...matrixFunctionSamples,
    ...solutionSamples,
    ...comparisonSamples,
    ...fusedSamples,
    ...complexSamples,
    ...embeddingBagSamples,
  ].map(parseCall);
}

/** The samples of a record, for an elementwise one without them those of its schema. */
function statedSamples(record: OperatorRecord): readonly string[] {
  const name = record.name.replace('aten.', '');
  if (record.samples !== undefined) return record.samples.map((args) => `${name}(${args})`);
  if (record.cls !== 'pointwise' || ELSEWHERE.test(record.name.split('.')[1])) return [];
  return pointwiseSamples(record);
}

/** Samples of every operator of the table that has a kernel, in the order of its records. */
export function sampleCalls(table: OperatorTable): CallText[] {
  const hlo = table.records.filter(
    (r) => r.cls === 'pointwise' && !isTorch(r.name) && kernelOf(r.name) !== undefined,
  );
  const all = [
    ...torchSamples(table),
    ...[
      ...gpuAttention,
      ...ruleSamples,
      ...hlo.flatMap(stablehloPointwise),
      ...stablehloSamples,
    ].map(parseCall),
  ];
  const byRecord = new Map<OperatorRecord, CallText[]>(table.records.map((r) => [r, []]));
  for (const call of all) {
    const record = table.get(call.target);
    if (record !== undefined) byRecord.get(record)?.push(call);
  }
  for (const [record, calls] of byRecord) calls.push(...ownSamples(record));
  return [...byRecord.values()].flat();
}

/**
 * Samples of an operator that is not built in: its own, or for an elementwise one those of its
 * schema.
 */
function ownSamples(record: OperatorRecord): CallText[] {
  if (isTorch(record.name)) return [];
  if (record.samples !== undefined) return record.samples.map((args) => callOf(record.name, args));
  if (
    record.kernel === undefined ||
    record.cls !== 'pointwise' ||
    /^(stablehlo|chlo)\./.test(record.name)
  )
    return [];
  return pointwiseSamples(record).map((text) =>
    callOf(record.name, text.slice(text.indexOf('(') + 1, -1)),
  );
}

/** ATen and prims, as against the StableHLO vocabulary. */
export function isTorch(name: string): boolean {
  return /^(aten|prims)\./.test(name);
}

/**
 * The same call with 4 rows wherever it has 5: on 3 ranks the last holds none. Undefined where the
 * call then makes no sense, or has no such size.
 */
export function resized(table: OperatorTable, call: CallText): CallText | undefined {
  return rewritten(table, call, (args) =>
    args.replaceAll(/(?<![\w.-])5(?![\w.])|(?<=index|distinct|signed)5(?=\[)/g, '4'),
  );
}

/**
 * The same call with all sizes of tensors beyond 1 equal: only there a rule that takes one dim for
 * another is offered at all. Undefined where the call then makes no sense, or is no other.
 */
export function squared(table: OperatorTable, call: CallText): CallText | undefined {
  return rewritten(table, call, (args) =>
    args.replaceAll(
      /(\w)\[([\d, ]+)\]/g,
      (_, word: string, sizes: string) =>
        `${word}[${sizes.replaceAll(/\d+/g, (n) => (Number(n) > 1 ? '6' : n))}]`,
    ),
  );
}

function rewritten(
  table: OperatorTable,
  call: CallText,
  change: (args: string) => string,
): CallText | undefined {
  const name = call.text.slice(0, call.text.indexOf('('));
  const before = call.text.slice(name.length);
  const args = change(before);
  if (args === before) return undefined;
  try {
    const other = { ...parseCall(`call${args}`), text: `${name}${args}`, target: call.target };
    bindText(table, other);
    return other;
  } catch (error) {
    if (error instanceof ShardwrightError && error.code === 'E_TYPE') return undefined;
    throw error;
  }
}
