import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import type { ExportFile } from '../../src/backend/target.ts';
import { jaxTypeName } from '../../src/export/jax/expressions.ts';
import { jaxTarget } from '../../src/export/jax/target.ts';
import type { NDArray } from '../../src/ndarray/array.ts';
import { numbersOf } from '../../src/ndarray/complex.ts';
import { evaluateGraph, type Value } from '../../src/simulate/evaluate.ts';
import { drawInputs } from '../../src/simulate/inputs.ts';
import { distinctCollectives } from '../export/distinct.ts';
import { JAX_CASES } from '../export/jax-cases.ts';
import {
  askedCollectives,
  hashOf,
  JAX_RECORD,
  type JaxAnswer,
  keptGraph,
  keptPlan,
  readJaxRecord,
  type RecordedCase,
  recordedSource,
  writeJaxRecord,
} from '../export/jax-record.ts';
import { TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';
import { runPython } from './support/torch.ts';

/**
 * Exported programs on eight CPU devices of JAX: their numbers beside the float64 evaluation of the
 * graph, and the collectives that they ask for and that XLA compiles. The answers are kept for `npm
 * test`; `SHARDWRIGHT_RECORD=1` writes them.
 */
interface Raw {
  readonly error?: string;
  readonly sharded: readonly (readonly (number | string)[] | null)[];
  readonly whole: readonly (readonly (number | string)[] | null)[];
  readonly written: Record<string, number>;
  readonly compiled: Record<string, number>;
}

const plainNumber = (v: number): number | string => (Number.isFinite(v) ? v : String(v));
const wire = (x: NDArray): unknown => ({
  shape: x.shape,
  dtype: jaxTypeName(x.dtype),
  data: Array.from(numbersOf(x), plainNumber),
});

/** Largest difference of any output, relative to the largest number in it. */
function difference(want: readonly (Value | null)[], got: Raw['whole']): number {
  let worst = 0;
  want.forEach((value, k) => {
    if (value === null) return;
    const numbers = numbersOf(value as NDArray);
    const scale = numbers.reduce(
      (m, v) => (Number.isFinite(v) ? Math.max(m, Math.abs(v)) : m),
      1e-9,
    );
    numbers.forEach((v, i) => {
      const own = Number(got[k]?.[i]);
      const off = Object.is(own, v) || own === v ? 0 : Math.abs(own - v) / scale;
      worst = Math.max(worst, Number.isNaN(off) ? Infinity : off);
    });
  });
  return worst;
}

const folder = mkdtempSync(join(tmpdir(), 'shardwright-jax-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const recording = process.env['SHARDWRIGHT_RECORD'] === '1';
/** Cases of every run, one of each kind: `npm test` holds the files of all to those that JAX ran. */
const DAILY = [
  'transformer with gradients on dp=2,tp=2, the optimum',
  'recurrent scan with gradients on a=2,b=2, drawn 0',
  'early exit (cond) on a=2,b=4, drawn 0',
  'mlp-loss on a=2,b=2,c=2, drawn 0',
  'einshard-mlp-grad-batch2-y4 on x=2,y=4, the optimum',
  'ctl-while on a=2,b=2, drawn 0',
];
const CASES = FULL || recording ? JAX_CASES : JAX_CASES.filter(({ name }) => DAILY.includes(name));
const files = new Map<string, readonly ExportFile[]>();
const kept: Record<string, RecordedCase> = {};
let jax = '';

beforeAll(async () => {
  const asked: unknown[] = [];
  const wanted = new Map<string, readonly (Value | null)[]>();
  const plans = new Map<string, Pick<RecordedCase, 'graph' | 'plan'>>();
  for (const [i, { name, graph: make, source: plan }] of CASES.entries()) {
    const graph = make();
    const source = await plan(graph);
    const own = { graph: keptGraph(source), plan: keptPlan(source) };
    // As `npm test` exports it: from the texts that are kept.
    const { files: written, losses } = jaxTarget.write(recordedSource(own));
    if (losses.length > 0) throw new Error(`${name} loses ${losses[0].item}: ${losses[0].instead}`);
    const at = join(folder, String(i));
    for (const { name: file, text } of written) {
      mkdirSync(dirname(join(at, file)), { recursive: true });
      writeFileSync(join(at, file), text);
    }
    const inputs = drawInputs(TABLE, graph, 0);
    files.set(name, written);
    plans.set(name, own);
    wanted.set(name, evaluateGraph(TABLE, graph, inputs, { seed: 0 }).outputs);
    asked.push({ name, folder: at, inputs: inputs.map(wire) });
  }
  const answer = JSON.parse(runPython('run_jax.py', [], JSON.stringify({ cases: asked }))) as {
    readonly jax: string;
    readonly cases: Record<string, Raw>;
  };
  jax = answer.jax;
  for (const { name } of CASES) {
    const raw = answer.cases[name];
    if (raw.error !== undefined) throw new Error(`${name}: ${raw.error}`);
    const [sharded, whole] = [raw.sharded, raw.whole].map((got) =>
      difference(wanted.get(name) ?? [], got),
    );
    const sorted = (of: Record<string, number>): Record<string, number> =>
      Object.fromEntries(Object.entries(of).sort());
    const result: JaxAnswer = {
      sharded,
      whole,
      written: sorted(raw.written),
      compiled: sorted(raw.compiled),
    };
    kept[name] = { ...plans.get(name)!, files: hashOf(files.get(name) ?? []), answer: result };
  }
  if (recording) {
    mkdirSync(dirname(JAX_RECORD), { recursive: true });
    writeFileSync(JAX_RECORD, writeJaxRecord({ jax, cases: kept }));
  }
}, 600_000);

describe('programs exported to JAX', () => {
  test.each(CASES.map(({ name }) => name))(
    '%s: the numbers of the graph, the collectives of the plan',
    (name) => {
      const { sharded, whole, written, compiled } = kept[name].answer;
      expect(sharded).toBeLessThan(1e-7);
      expect(whole).toBeLessThan(1e-7);
      expect(written).toEqual(askedCollectives(files.get(name) ?? []));
      // XLA makes one of equal ones, and adds none.
      for (const [kind, count] of Object.entries(compiled))
        expect(count).toBeLessThanOrEqual(written[kind] ?? 0);
      if (name.endsWith('the optimum'))
        expect(compiled).toEqual(distinctCollectives(recordedSource(kept[name])));
    },
  );

  test('the recorded answers are those of this JAX', () => {
    const record = readJaxRecord(readFileSync(JAX_RECORD));
    expect(record.jax).toBe(jax);
    expect(Object.keys(record.cases)).toEqual(JAX_CASES.map(({ name }) => name));
    expect(CASES.length).toBeGreaterThanOrEqual(DAILY.length);
  });
});
