import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, expect, it } from 'vitest';

import { builtinOperators } from '../../src/entries/ops.ts';
import { DEFAULT_REQUEST, planTexts } from '../../src/entries/plan.ts';
import { importGraph, shard } from '../../src/index.ts';
import { cli, fixture } from '../cli/support.ts';

const root = mkdtempSync(join(tmpdir(), 'answer-'));
afterAll(() => rmSync(root, { recursive: true }));

const request = { ...DEFAULT_REQUEST, mesh: 'dp=2,tp=4', cluster: 'dgx-h100' };
const graphOf = (model: string) =>
  importGraph(readFileSync(fixture(model)), { name: 'joint.expanded' });

/** The text of a plan without the clock of its search. */
const timeless = (text: string): unknown =>
  JSON.parse(text, (key, value: unknown) => (key === 'solveSeconds' ? null : value));

it('the library gives the plan that the command writes, where a recipe has the shortest step', async () => {
  const table = builtinOperators();
  const found = await shard(graphOf('gpt2-2l'), request, { table });
  if (found.status === 'infeasible') throw new Error('a request without a budget has a plan');
  expect(found.step?.name).toBe('data parallel (dp+tp)');
  expect(found.choice).not.toEqual(found.serial.choice);
  const out = join(root, 'plan');
  const { code, err } = await cli(
    ...['plan', fixture('gpt2-2l'), '--mesh', request.mesh, '--cluster', request.cluster],
    ...['-o', out],
  );
  expect(err).toBe('');
  expect(code).toBe(0);
  const texts = planTexts(found.plan, found.prepared.question.program, found.certificate);
  expect(timeless(texts.plan)).toEqual(timeless(readFileSync(join(out, 'plan.json'), 'utf8')));
});

it('without recipes the library gives the plan of least summed costs', async () => {
  const table = builtinOperators();
  const found = await shard(graphOf('gpt2-2l'), request, { table, recipes: false });
  if (found.status === 'infeasible') throw new Error('a request without a budget has a plan');
  expect(found.recipes).toEqual([]);
  expect(found.step).toBeUndefined();
  expect(found.plan).toBe(found.serial.plan);
});
