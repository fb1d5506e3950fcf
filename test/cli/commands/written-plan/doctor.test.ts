import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { PAPER } from '../../../export/running-plans.ts';
import { cli } from '../../support.ts';

const running = (name: string): string =>
  fileURLToPath(new URL(`../../../fixtures/running/${name}`, import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'shardwright-doctor-'));
const at = (name: string): string => join(folder, name);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Writes the recorded trace as that of a rank. */
function traceOf(rank: number, name: string): string {
  const text = gunzipSync(readFileSync(running('llama-sdpa.trace.json.gz'))).toString();
  const { traceEvents } = JSON.parse(text) as { traceEvents: unknown };
  const info = { backend: 'gloo', rank, world_size: 4 };
  writeFileSync(at(name), JSON.stringify({ distributedInfo: info, traceEvents }));
  return at(name);
}

describe('doctor', () => {
  beforeAll(async () => {
    writeFileSync(at('paper.json'), PAPER);
    const asked = ['--mesh', 'dp=2,tp=2', '--cluster', at('paper.json')];
    const recipe = ['--recipe', 'FSDP (dp) + Megatron (tp)', '--no-recipes'];
    const model = running('llama-sdpa.fx.txt.gz');
    const made = await cli('plan', model, ...asked, ...recipe, '-o', at('plan'));
    expect(made.code, made.err).toBe(0);
  });

  it('says where the step loses time, of the ranks whose traces it has', async () => {
    const runs = [traceOf(2, 'a.json'), traceOf(0, 'b.json')].flatMap((file) => ['--run', file]);
    const { code, out } = await cli('doctor', at('plan'), ...runs, '--json');
    const found = JSON.parse(out) as {
      ranks: number[];
      measuredSeconds: number;
      lost: { kind: string; seconds: number; what: string; change: string }[];
    };
    expect([code, found.ranks]).toEqual([0, [2, 0]]);
    const [most] = found.lost;
    expect(most.kind).toBe('collectives');
    expect(most.what).toMatch(/^collectives are slower than their price, most of all \S+ over \w+/);
    expect(most.seconds).toBeLessThan(found.measuredSeconds);
    const text = await cli('doctor', at('plan'), ...runs);
    expect(text.out).toContain(most.what);
    expect(text.out).toContain(most.change);
    expect(text.out).not.toContain('--run is repeatable');
  });

  it('asks for the traces of more ranks where it has one', async () => {
    const { out } = await cli('doctor', at('plan'), '--run', traceOf(0, 'b.json'));
    expect(out).toContain('waits for other ranks included');
    expect(out).toContain('traces of more ranks (--run is repeatable) say who waits for whom');
  });

  it('refuses two traces of one rank, and a rank that the mesh does not have', async () => {
    const twice = ['--run', traceOf(1, 'a.json'), '--run', traceOf(1, 'b.json')];
    const two = await cli('doctor', at('plan'), ...twice);
    expect(two.code).not.toBe(0);
    expect(two.err).toMatch(/E_TRACE .*a\.json and this trace are both of rank 1/s);
    const other = await cli('doctor', at('plan'), '--run', traceOf(7, 'a.json'));
    expect(other.err).toMatch(/E_TRACE .*rank 7, and the plan's mesh dp=2,tp=2 has 4 ranks/s);
    const none = await cli('doctor', at('plan'));
    expect(none.err).toMatch(/E_USAGE .*--run is missing/);
  });
});
