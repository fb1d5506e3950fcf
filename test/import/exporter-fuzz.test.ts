import { unzipSync, zipSync } from 'fflate';
import { describe, expect, test } from 'vitest';
import { ShardwrightError } from '../../src/errors.ts';
import { lintGraph } from '../../src/graph/lint.ts';
import type { Format } from '../../src/import/formats.ts';
import { importModel } from '../../src/import/import.ts';
import { answerKey, text } from './fixtures.ts';
import { fixture, infer, inputTypes } from './twins.ts';

/**
 * FM-56: damaged files give a linted graph or a coded error with a remedy. 10,000 cases a format with SHARDWRIGHT_FULL=1,
 * a sample otherwise; a failure prints its seed.
 */
const CASES = process.env.SHARDWRIGHT_FULL === '1' ? 10_000 : 250;

/** Mulberry32. */
function random(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 2 ** 32) * below);
  };
}

const HOSTILE = [
  '__proto__', 'constructor', 'toString', '"', '\\', '%', '(', '[', '{', ')', ']', '}', ',', ':', '\n', '\t', '\0', '\u{1F600}', '-1', '1e999',
  '99999999999999999999999999', '9007199254740993', '-9223372036854775808', 'NaN', 'null', 'None', '[['.repeat(300), '{"a":'.repeat(300), 'x'.repeat(5000),
]; // prettier-ignore

function damaged(source: Uint8Array, pick: (below: number) => number): Uint8Array {
  let data: Uint8Array = Uint8Array.from(source);
  const edits = 1 + pick(3);
  for (let i = 0; i < edits; i++) {
    const at = pick(data.length);
    const to = Math.min(data.length, at + 1 + pick(24));
    const cut = (insert: Uint8Array): Uint8Array => {
      const out = new Uint8Array(at + insert.length + data.length - to);
      out.set(data.subarray(0, at));
      out.set(insert, at);
      out.set(data.subarray(to), at + insert.length);
      return out;
    };
    switch (pick(7)) {
      case 0:
        data[at] ^= 1 << pick(8);
        break;
      case 1:
        data[at] = pick(256);
        break;
      case 2:
        data = data.slice(0, at + 1);
        break;
      case 3:
        data = cut(new Uint8Array());
        break;
      case 4: {
        const from = pick(data.length);
        data = cut(data.slice(from, from + 1 + pick(64)));
        break;
      }
      case 5:
        data = cut(new TextEncoder().encode(HOSTILE[pick(HOSTILE.length)]));
        break;
      default: {
        // A number becomes another one, where there is one near.
        const digit = data.subarray(at).findIndex((c) => c >= 48 && c <= 57);
        if (digit >= 0) data[at + digit] = 48 + pick(10);
      }
    }
    if (data.length === 0) return data;
  }
  return data;
}

const encode = (source: string): Uint8Array => new TextEncoder().encode(source);
const archive = unzipSync(fixture('torch/hop-while/export.pt2.gz'));
const MODEL = 'archive/models/model.json';
const dynamic = unzipSync(fixture('torch/mlp-dynamic/export.pt2.gz'))[MODEL];
const small = zipSync({ [MODEL]: [archive[MODEL], { level: 6 }], 'archive/data/weights/w': new Uint8Array(64) });
const lines = text('logs/mlp.log.gz').split('\n');
const log = lines.slice(0, 50).join('\n');
const trace = `V1120 11:01:03.362000 13582 a.py:28] {"aot_joint_graph": {}, "frame_id": 0, "has_payload": "00"}\n\t${text('mlp/joint.readable.txt.gz').replaceAll('\n', '\n\t')}`;

const FORMATS: readonly [format: Format, sources: readonly Uint8Array[]][] = [
  ['pt2', [small]],
  ['pt2-json', [archive[MODEL], dynamic]],
  ['onnx', [fixture('onnx/hop-cond.onnx.gz'), fixture('onnx/hop-while.onnx.gz'), fixture('onnx/mlp-dynamic.onnx.gz')]],
  ['fx-graph', [encode(text('mlp/joint.graph.txt.gz')), encode(text('hop-while/export.graph.txt.gz'))]],
  ['torch-log', [encode(log)]],
  ['torch-trace', [encode(trace)]],
  ['exported-program', [encode(text('mlp-dynamic/export.ep.txt.gz'))]],
]; // prettier-ignore

const inputs = { ...inputTypes(answerKey('mlp/joint').shapes), ...inputTypes(answerKey('hop-while/export').shapes) };

describe('FM-55 FM-56 damaged files', () => {
  test.each(FORMATS)('%s: a graph or a coded error, never anything else', (format, sources) => {
    const seen = new Map<string, number>();
    for (let seed = 0; seed < CASES; seed++) {
      const pick = random(seed * 7919 + 17);
      const data = damaged(sources[pick(sources.length)], pick);
      const options = { format, infer, inputs, ...(format === 'torch-log' ? { select: 'aot_joint_graph' } : {}) };
      let outcome: string;
      try {
        const { graph } = importModel(data, options);
        lintGraph(graph);
        outcome = 'graph';
      } catch (error) {
        if (!(error instanceof ShardwrightError) || error.code === 'E_INTERNAL')
          throw new Error(`seed ${seed}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
        if ((error.details.hint ?? '') === '' && error.code !== 'E_GRAPH_LINT') throw new Error(`seed ${seed}: no remedy in ${error.headline}`);
        outcome = error.code;
      }
      seen.set(outcome, (seen.get(outcome) ?? 0) + 1);
    }
    // Damage must be found in several ways; a harness that always fails at the first byte would show one code only.
    // In an archive nearly every bit is under a checksum.
    expect(seen.size).toBeGreaterThan(format === 'pt2' ? 1 : 2);
    expect(Object.prototype).not.toHaveProperty('kind');
  }, 600_000); // prettier-ignore
});
