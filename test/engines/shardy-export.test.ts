import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

import { beforeAll, describe, expect, test } from 'vitest';

import type { ExportTarget } from '../../src/backend/target.ts';
import { jaxTypeName } from '../../src/export/jax/expressions.ts';
import { jaxTarget } from '../../src/export/jax/target.ts';
import { gspmdTarget, shardyTarget } from '../../src/export/shardy/target.ts';
import type { NDArray } from '../../src/ndarray/array.ts';
import { numbersOf } from '../../src/ndarray/complex.ts';
import { evaluateGraph } from '../../src/simulate/evaluate.ts';
import { drawInputs } from '../../src/simulate/inputs.ts';
import { JAX_CASES } from '../export/jax-cases.ts';
import { askedCollectives } from '../export/jax-record.ts';
import { SHARDY_RECORD, type ShardyAnswer } from '../export/shardy-record.ts';
import { TABLE } from '../plan/support.ts';
import { runPython } from './support/torch.ts';

/**
 * Shardy and GSPMD texts of optimal plans, compiled by the XLA of JAX for eight CPU devices: their
 * numbers, and the collectives that XLA puts beside those of the plan. The answers are kept;
 * `SHARDWRIGHT_RECORD=1` writes them.
 */
const CASES = JAX_CASES.filter(({ name }) => name.endsWith('the optimum'));
const TARGETS: readonly ExportTarget[] = [shardyTarget, gspmdTarget];
const answers: Record<string, ShardyAnswer> = {};
let jax = '';

const plainNumber = (v: number): number | string => (Number.isFinite(v) ? v : String(v));

beforeAll(async () => {
  const asked: unknown[] = [];
  const wanted = new Map<string, readonly NDArray[]>();
  const planned = new Map<string, Record<string, number>>();
  for (const { name, graph: make, source: plan } of CASES) {
    const graph = make();
    const source = await plan(graph);
    const inputs = drawInputs(TABLE, graph, 0);
    const outputs = evaluateGraph(TABLE, graph, inputs, { seed: 0 }).outputs.flatMap((o) =>
      o === null ? [] : [o as NDArray],
    );
    for (const target of TARGETS) {
      const { files } = target.write(source);
      const key = `${target.name}: ${name}`;
      const { inputs: stated } = JSON.parse(files[1].text) as { inputs: { spec: string }[] };
      wanted.set(key, outputs);
      planned.set(key, askedCollectives(jaxTarget.write(source).files));
      asked.push({
        name: key,
        text: files[0].text,
        mesh: source.mesh.names.map((dim, m) => [dim, source.mesh.sizes[m]]),
        specs: stated.map(({ spec }) => spec),
        shardy: target.name === 'shardy',
        inputs: inputs.map((x) => ({
          shape: x.shape,
          dtype: jaxTypeName(x.dtype),
          data: Array.from(numbersOf(x), plainNumber),
        })),
        outputs: outputs.map((x) => ({ shape: x.shape, dtype: jaxTypeName(x.dtype) })),
      });
    }
  }
  const raw = JSON.parse(runPython('run_stablehlo.py', [], JSON.stringify({ cases: asked }))) as {
    readonly jax: string;
    readonly cases: Record<
      string,
      { error?: string; outputs: (number | string)[][]; compiled: Record<string, number> }
    >;
  };
  jax = raw.jax;
  for (const [name, { error, outputs, compiled }] of Object.entries(raw.cases)) {
    if (error !== undefined) throw new Error(`${name}: ${error}`);
    let worst = 0;
    for (const [k, want] of (wanted.get(name) ?? []).entries()) {
      const numbers = numbersOf(want);
      const scale = numbers.reduce(
        (m, v) => (Number.isFinite(v) ? Math.max(m, Math.abs(v)) : m),
        1e-9,
      );
      numbers.forEach((v, i) => {
        const own = Number(outputs[k]?.[i]);
        const off = Object.is(own, v) || own === v ? 0 : Math.abs(own - v) / scale;
        worst = Math.max(worst, Number.isNaN(off) ? Infinity : off);
      });
    }
    answers[name] = {
      worst,
      planned: planned.get(name) ?? {},
      compiled: Object.fromEntries(Object.entries(compiled).sort()),
    };
  }
  if (process.env['SHARDWRIGHT_RECORD'] !== '1') return;
  mkdirSync(dirname(SHARDY_RECORD), { recursive: true });
  writeFileSync(SHARDY_RECORD, `${JSON.stringify({ jax, cases: answers }, null, 1)}\n`);
}, 600_000);

describe('StableHLO with shardings, compiled by XLA', () => {
  test.each(TARGETS.flatMap((target) => CASES.map(({ name }) => `${target.name}: ${name}`)))(
    '%s: the same numbers',
    (name) => {
      expect(answers[name].worst).toBeLessThan(1e-9);
    },
  );

  test('what XLA puts in place of the planned collectives is what is recorded', () => {
    const record = JSON.parse(readFileSync(SHARDY_RECORD, 'utf8')) as {
      jax: string;
      cases: Record<string, ShardyAnswer>;
    };
    expect(record.jax).toBe(jax);
    const kinds = (of: Record<string, ShardyAnswer>): unknown =>
      Object.fromEntries(
        Object.entries(of).map(([name, { planned, compiled }]) => [name, { planned, compiled }]),
      );
    expect(kinds(answers)).toEqual(kinds(record.cases));
  });
});
